//! The rate limit service as gRPC reflection describes it, so that `grpcurl` and the like need no `.proto` files.
//!
//! The generated messages come without their descriptors. What is here is the part of Envoy's API that the service reaches,
//! under its own file names; a test holds it to the generated messages.

mod files;

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    FileDescriptorSet, MessageOptions, MethodDescriptorProto, OneofDescriptorProto, ServiceDescriptorProto,
};

/// A file of definitions.
struct File {
    path: &'static str,
    package: &'static str,
    imports: &'static [&'static str],
    messages: &'static [Message],
    enums: &'static [Enum],
    service: Option<Service>,
}

/// A message. Where fields are of one `oneof`, it has this name; none here has two.
struct Message {
    name: &'static str,
    fields: &'static [Field],
    messages: &'static [Message],
    enums: &'static [Enum],
    one_of: Option<&'static str>,
    /// The entries of a map.
    is_entry: bool,
}

struct Field {
    name: &'static str,
    number: i32,
    kind: Kind,
    count: Count,
}

#[derive(Clone, Copy)]
enum Kind {
    Bool,
    Bytes,
    Double,
    Float,
    I32,
    I64,
    U32,
    U64,
    Text,
    /// By its full name.
    Enum(&'static str),
    /// By its full name.
    Message(&'static str),
}

#[derive(Clone, Copy, PartialEq)]
enum Count {
    One,
    Many,
    OneOf,
}

struct Enum {
    name: &'static str,
    values: &'static [(&'static str, i32)],
}

/// A service with one method.
struct Service {
    name: &'static str,
    method: &'static str,
    input: &'static str,
    output: &'static str,
}

/// An encoded `google.protobuf.FileDescriptorSet` with the service and all that it uses.
pub(crate) fn file_descriptor_set() -> Vec<u8> {
    FileDescriptorSet { file: files::FILES.iter().map(File::describe).collect() }.encode_to_vec()
}

impl File {
    fn describe(&self) -> FileDescriptorProto {
        FileDescriptorProto {
            name: text(self.path),
            package: text(self.package),
            dependency: self.imports.iter().map(|path| (*path).to_owned()).collect(),
            message_type: self.messages.iter().map(Message::describe).collect(),
            enum_type: self.enums.iter().map(Enum::describe).collect(),
            service: self.service.iter().map(Service::describe).collect(),
            syntax: text("proto3"),
            ..FileDescriptorProto::default()
        }
    }
}

impl Message {
    const fn new(name: &'static str, fields: &'static [Field]) -> Message {
        Message { name, fields, messages: &[], enums: &[], one_of: None, is_entry: false }
    }

    /// With others inside.
    const fn with(self, messages: &'static [Message], enums: &'static [Enum]) -> Message {
        Message { messages, enums, ..self }
    }

    const fn one_of(self, name: &'static str) -> Message {
        Message { one_of: Some(name), ..self }
    }

    /// The entries of a map from texts.
    const fn entry(name: &'static str, fields: &'static [Field]) -> Message {
        Message { is_entry: true, ..Message::new(name, fields) }
    }

    fn describe(&self) -> DescriptorProto {
        let one_of = |name: &&str| OneofDescriptorProto { name: text(name), options: None };
        DescriptorProto {
            name: text(self.name),
            field: self.fields.iter().map(Field::describe).collect(),
            nested_type: self.messages.iter().map(Message::describe).collect(),
            enum_type: self.enums.iter().map(Enum::describe).collect(),
            oneof_decl: self.one_of.iter().map(one_of).collect(),
            options: self.is_entry.then(|| MessageOptions { map_entry: Some(true), ..MessageOptions::default() }),
            ..DescriptorProto::default()
        }
    }
}

impl Field {
    const fn new(name: &'static str, number: i32, kind: Kind) -> Field {
        Field { name, number, kind, count: Count::One }
    }

    const fn many(name: &'static str, number: i32, kind: Kind) -> Field {
        Field { name, number, kind, count: Count::Many }
    }

    const fn one_of(name: &'static str, number: i32, kind: Kind) -> Field {
        Field { name, number, kind, count: Count::OneOf }
    }

    fn describe(&self) -> FieldDescriptorProto {
        let (kind, of) = self.kind.describe();
        FieldDescriptorProto {
            name: text(self.name),
            number: Some(self.number),
            label: Some(if self.count == Count::Many { Label::Repeated } else { Label::Optional } as i32),
            r#type: Some(kind as i32),
            type_name: of.map(full_name),
            oneof_index: (self.count == Count::OneOf).then_some(0),
            ..FieldDescriptorProto::default()
        }
    }
}

impl Kind {
    /// Its type, and the name of the message or enumeration.
    fn describe(self) -> (Type, Option<&'static str>) {
        match self {
            Kind::Bool => (Type::Bool, None),
            Kind::Bytes => (Type::Bytes, None),
            Kind::Double => (Type::Double, None),
            Kind::Float => (Type::Float, None),
            Kind::I32 => (Type::Int32, None),
            Kind::I64 => (Type::Int64, None),
            Kind::U32 => (Type::Uint32, None),
            Kind::U64 => (Type::Uint64, None),
            Kind::Text => (Type::String, None),
            Kind::Enum(of) => (Type::Enum, Some(of)),
            Kind::Message(of) => (Type::Message, Some(of)),
        }
    }
}

impl Enum {
    fn describe(&self) -> EnumDescriptorProto {
        let value = |&(name, number): &(&str, i32)| EnumValueDescriptorProto {
            name: text(name),
            number: Some(number),
            options: None,
        };
        EnumDescriptorProto {
            name: text(self.name),
            value: self.values.iter().map(value).collect(),
            ..EnumDescriptorProto::default()
        }
    }
}

impl Service {
    fn describe(&self) -> ServiceDescriptorProto {
        let method = MethodDescriptorProto {
            name: text(self.method),
            input_type: Some(full_name(self.input)),
            output_type: Some(full_name(self.output)),
            ..MethodDescriptorProto::default()
        };
        ServiceDescriptorProto { name: text(self.name), method: vec![method], options: None }
    }
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// A name that is looked up from the root.
fn full_name(name: &str) -> String {
    format!(".{name}")
}

#[cfg(test)]
mod tests;
