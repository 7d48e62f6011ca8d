//! The generator: everything in `src/generated/`, made from everything in `proto/`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use prost::Message as _;
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FileDescriptorSet};

/// `string` fields that are read as bytes.
///
/// Protobuf demands UTF-8 of a string, and a decoder fails on a message without it. Some fields have what a client of the
/// sender sent, which can be any bytes. Reflection calls such a field a `string`, as its sender does; the generated struct
/// has [`prost::bytes::Bytes`]. On the wire, both are the same.
const STRINGS_READ_AS_BYTES: [&str; 1] = [".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry.value"];

/// The compiler of `.proto` files, found on `PATH`.
const PROTOC: &str = "protoc";

const HEADER: &str = "//! Generated from `proto/` by `make proto`; not to be edited.\n\n";

/// Files by their paths in the directory of generated files.
pub(crate) type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Whether there is a `protoc`.
pub(crate) fn has_protoc() -> bool {
    Command::new(PROTOC).arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// The directory that [`generate`] fills.
pub(crate) fn directory() -> PathBuf {
    package().join("src/generated")
}

/// All generated files.
///
/// # Errors
/// No `protoc`, or a `.proto` file that it refuses.
pub(crate) fn generate() -> Result<Files> {
    let encoded = descriptors(&package().join("proto"))?;
    let mut set = FileDescriptorSet::decode(encoded.as_slice()).map_err(Error::other)?;
    STRINGS_READ_AS_BYTES.into_iter().try_for_each(|field| read_as_bytes(&mut set, field))?;

    let scratch = tempfile::tempdir()?;
    let builder = tonic_prost_build::configure()
        .emit_rerun_if_changed(false)
        .build_transport(false)
        .client_mod_attribute(".", "#[cfg(feature = \"client\")]")
        .server_mod_attribute(".", "#[cfg(feature = \"server\")]")
        .out_dir(scratch.path());
    STRINGS_READ_AS_BYTES.into_iter().fold(builder, |builder, field| builder.bytes(field)).compile_fds(set)?;

    let mut files = Files::from([("descriptors.binpb".into(), encoded)]);
    let mut modules = BTreeSet::new();
    for entry in fs::read_dir(scratch.path())? {
        let path = entry?.path();
        let package = path.file_stem().and_then(|name| name.to_str()).ok_or(ErrorKind::InvalidFilename)?;
        // A module's name may be `r#type`, the name of its file is `type.rs`.
        let file = PathBuf::from_iter(package.replace("r#", "").split('.')).with_extension("rs");
        files.insert(file, [HEADER.as_bytes(), &fs::read(&path)?].concat());
        modules.insert(package.split('.').map(str::to_owned).collect());
    }
    if let Some(outer) =
        modules.iter().find(|outer: &&Vec<_>| modules.iter().any(|inner| inner != *outer && inner.starts_with(outer)))
    {
        return Err(Error::other(format!(
            "package {} has types and packages inside, which the generator can't lay out",
            outer.join(".")
        )));
    }
    files.insert("mod.rs".into(), format!("{HEADER}{}", tree(&modules, 0)).into_bytes());
    Ok(files)
}

fn package() -> PathBuf {
    // Where cargo says that it is now: a target directory may be shared by several copies of the repository.
    env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

/// The encoded set of all `.proto` files below `root`, each after those that it imports.
fn descriptors(root: &Path) -> Result<Vec<u8>> {
    let set = tempfile::NamedTempFile::new()?;
    let mut protoc = Command::new(PROTOC);
    protoc.arg("--include_imports").arg("--proto_path").arg(root).arg("--descriptor_set_out").arg(set.path());
    let output = protoc.args(protos(root)?).output()?;
    match output.status.success() {
        true => fs::read(set.path()),
        false => Err(Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

/// The `.proto` files below a directory, sorted.
fn protos(directory: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.append(&mut protos(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            found.insert(path);
        }
    }
    Ok(found)
}

/// Makes a `string` field, by its full name, a `bytes` field.
fn read_as_bytes(set: &mut FileDescriptorSet, name: &str) -> Result<()> {
    let error = |reason: &str| Error::new(ErrorKind::InvalidInput, format!("{name} in STRINGS_READ_AS_BYTES {reason}"));
    let field = set.file.iter_mut().find_map(|file| {
        let rest = name.strip_prefix('.')?.strip_prefix(file.package())?.strip_prefix('.')?;
        let (messages, field) = rest.rsplit_once('.')?;
        let message = find(&mut file.message_type, messages)?;
        message.field.iter_mut().find(|candidate| candidate.name() == field)
    });
    let field = field.ok_or_else(|| error("is not a field"))?;
    if field.r#type() != Type::String {
        return Err(error("is not a string"));
    }
    field.set_type(Type::Bytes);
    Ok(())
}

/// The message with this name, such as `RateLimitDescriptor.Entry`.
fn find<'a>(messages: &'a mut [DescriptorProto], name: &str) -> Option<&'a mut DescriptorProto> {
    let (outer, inner) = name.split_once('.').map_or((name, None), |(outer, inner)| (outer, Some(inner)));
    let message = messages.iter_mut().find(|message| message.name() == outer)?;
    match inner {
        Some(inner) => find(&mut message.nested_type, inner),
        None => Some(message),
    }
}

/// The declarations of these modules, each with all that it is in.
fn tree(modules: &BTreeSet<Vec<String>>, depth: usize) -> String {
    let indent = "    ".repeat(depth);
    let names: BTreeSet<&String> = modules.iter().filter_map(|path| path.get(depth)).collect();
    let mut text = String::new();
    for name in names {
        let inside = modules.iter().filter(|path| path.get(depth) == Some(name));
        let deeper: BTreeSet<_> = inside.filter(|path| path.len() > depth + 1).cloned().collect();
        // Writing to a String can't fail.
        let _ = match deeper.is_empty() {
            true => writeln!(text, "{indent}#[rustfmt::skip]\n{indent}pub mod {name};"),
            false => writeln!(text, "{indent}pub mod {name} {{\n{}{indent}}}", tree(&deeper, depth + 1)),
        };
    }
    text
}
