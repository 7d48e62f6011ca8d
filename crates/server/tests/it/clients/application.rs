//! What stands behind the proxies: an application that answers everything with what it was asked.

use std::io::{self, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};

use crate::clients::http::read_head;

/// Its address. It serves until the tests end.
pub(crate) fn application() -> String {
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
        let sent = head.body(&mut stream)?;
        let lines = head.headers.iter().map(|(name, value)| format!("{}: {value}\n", name.to_ascii_lowercase()));
        let body = format!("{}\n{}\n{}", head.first, lines.collect::<String>(), String::from_utf8_lossy(&sent));
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n", body.len());
        // A HEAD is not asked of it.
        stream.get_mut().write_all(format!("{answer}{body}").as_bytes())?;
    }
    Ok(())
}
