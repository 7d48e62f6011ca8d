//! Writes `src/generated/`: what `make proto` runs.

#[path = "../generator/mod.rs"]
mod generator;

use std::{fs, io};

fn main() -> io::Result<()> {
    if !generator::has_protoc() {
        return Err(io::Error::other("protoc is missing; install the package protobuf-compiler"));
    }
    // First all of it, so that an error leaves the old files.
    let files = generator::generate()?;
    let directory = generator::directory();
    match fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    for (path, content) in files {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&directory))?;
        fs::write(path, content)?;
    }
    Ok(())
}
