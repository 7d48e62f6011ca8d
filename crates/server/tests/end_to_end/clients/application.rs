//! The application behind the proxies, which responds to every request with the request itself.

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
        let response = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n", body.len());
        // It receives no HEAD requests.
        stream.get_mut().write_all(format!("{response}{body}").as_bytes())?;
    }
    Ok(())
}
