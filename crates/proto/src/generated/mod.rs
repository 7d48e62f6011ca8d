//! Generated from `proto/` by `make proto`; not to be edited.

pub mod envoy {
    pub mod config {
        pub mod core {
            #[rustfmt::skip]
            pub mod v3;
        }
    }
    pub mod extensions {
        pub mod common {
            pub mod ratelimit {
                #[rustfmt::skip]
                pub mod v3;
            }
        }
    }
    pub mod r#type {
        #[rustfmt::skip]
        pub mod v3;
    }
    pub mod service {
        pub mod ratelimit {
            #[rustfmt::skip]
            pub mod v3;
        }
    }
}
