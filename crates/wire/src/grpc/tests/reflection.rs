//! Reflection, in both of its versions, against the descriptors that are checked in.

use hyper_util::rt::TokioIo;
use prost::Message;
use prost_types::{FileDescriptorProto, FileDescriptorSet};
use tollgate_net::closing::Closer;
use tollgate_store::conformance::gated::GatedStore;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

/// A channel to a server, which ends with the closer.
async fn channel() -> (Channel, Closer) {
    let (ours, closer) = super::connect(&GatedStore::new());
    let mut ours = Some(TokioIo::new(ours));
    let connector = service_fn(move |_: Uri| std::future::ready(ours.take().ok_or("there is one connection")));
    (Endpoint::from_static("http://t").connect_with_connector(connector).await.unwrap(), closer)
}

fn files() -> Vec<FileDescriptorProto> {
    FileDescriptorSet::decode(tollgate_proto::FILE_DESCRIPTOR_SET).unwrap().file
}

/// Requests the services, the file of some symbols, and all files by name.
macro_rules! check_reflection {
    ($test:ident, $version:ident) => {
        #[tokio::test]
        async fn $test() {
            use tonic_reflection::pb::$version::ServerReflectionRequest;
            use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
            use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
            use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;

            let (channel, _closer) = channel().await;
            let symbols = [
                ("envoy.service.ratelimit.v3.RateLimitService", "envoy/service/ratelimit/v3/rls.proto"),
                (
                    "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry",
                    "envoy/extensions/common/ratelimit/v3/ratelimit.proto",
                ),
                ("google.protobuf.Struct.FieldsEntry", "google/protobuf/struct.proto"),
            ];
            let by_symbol = symbols.map(|(symbol, _)| MessageRequest::FileContainingSymbol(symbol.to_owned()));
            let by_name = files().into_iter().map(|file| MessageRequest::FileByFilename(file.name().to_owned()));
            let requests: Vec<_> = [MessageRequest::ListServices(String::new())]
                .into_iter()
                .chain(by_symbol)
                .chain(by_name)
                .map(|request| ServerReflectionRequest { host: String::new(), message_request: Some(request) })
                .collect();
            let mut client = ServerReflectionClient::new(channel);
            let mut stream = client.server_reflection_info(tokio_stream::iter(requests)).await.unwrap().into_inner();
            let mut responses = Vec::new();
            while let Some(response) = stream.message().await.unwrap() {
                responses.push(response.message_response.unwrap());
            }

            let MessageResponse::ListServicesResponse(services) = responses.remove(0) else { panic!("no services") };
            let services: Vec<_> = services.service.into_iter().map(|service| service.name).collect();
            for service in ["envoy.service.ratelimit.v3.RateLimitService", "grpc.health.v1.Health"] {
                assert!(services.iter().any(|name| name == service), "{services:?}");
            }
            let received: Vec<_> = responses
                .into_iter()
                .map(|response| match response {
                    MessageResponse::FileDescriptorResponse(files) => {
                        FileDescriptorProto::decode(&files.file_descriptor_proto[0][..]).unwrap()
                    }
                    other => panic!("{other:?}"),
                })
                .collect();
            let (by_symbol, by_name) = received.split_at(symbols.len());
            let names: Vec<_> = by_symbol.iter().map(|file| file.name()).collect();
            assert_eq!(names, symbols.map(|(_, file)| file));
            assert_eq!(by_name, files());
        }
    };
}

check_reflection!(version_1, v1);
check_reflection!(version_1alpha, v1alpha);
