//! The application behind the proxies, which responds to every request with the request itself. The header `X-Route` is
//! the method and the path by which a web framework would find a handler.

use std::io::{self, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};

use crate::clients::http::read_head;

/// Starts the application, which runs until the tests end, and returns its address.
pub(crate) fn start_application() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

fn serve(stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(head) = read_head(&mut stream)? {
        let received = head.body(&mut stream)?;
        let lines = head.headers.iter().map(|(name, value)| format!("{}: {value}\n", name.to_ascii_lowercase()));
        let body = format!("{}\n{}\n{}", head.first, lines.collect::<String>(), String::from_utf8_lossy(&received));
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Route: {}\r\n", route(&head.first));
        let response = format!("{head}Content-Length: {}\r\n\r\n", body.len());
        // It receives no HEAD requests.
        stream.get_mut().write_all(format!("{response}{body}").as_bytes())?;
    }
    Ok(())
}

/// The method and the decoded path of a request line, without repeated slashes and dot segments.
fn route(line: &str) -> String {
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let mut decoded = String::new();
    let mut parts = path.split('%');
    decoded.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(u8::is_ascii_graphic);
        match byte {
            Some(byte) => decoded.extend([&char::from(byte).to_string(), &part[2..]]),
            None => decoded.extend(["%", part]),
        }
    }
    let mut segments = Vec::new();
    for segment in decoded.split('/').filter(|segment| !matches!(*segment, "" | ".")) {
        match segment {
            ".." => _ = segments.pop(),
            segment => segments.push(segment),
        }
    }
    format!("{method} /{}", segments.join("/"))
}
