//! `-info` and `-v`: what the shim is and can do.

use crate::bootstrap::options::options_of;
use crate::wire::Any;
use crate::wire::options::{Options, RuntimeInfo, RuntimeVersion};
use prost::Message as _;
use std::io::{self, Read as _};

pub(crate) fn version() -> String {
    let (version, commit) = (env!("CARGO_PKG_VERSION"), commit());
    format!("{}:\n  Version:  {version}\n  Revision: {commit}\n", crate::PROGRAM)
}

/// Returns the commit that the shim was built from, or nothing.
fn commit() -> &'static str {
    option_env!("HUSK_COMMIT").unwrap_or_default()
}

/// Prints the runtime's features. The input is the options that a container would have.
pub(crate) fn info() -> Result<(), String> {
    let mut input = Vec::new();
    io::stdin().read_to_end(&mut input).map_err(|error| format!("read stdin: {error}"))?;
    let any = if input.is_empty() { None } else { Any::decode(&*input).ok() };
    let options = options_of(any.as_ref()).map_err(|failure| failure.message)?;
    let features = serde_json::to_vec(&husk_runtime::features()).map_err(|error| error.to_string())?;
    let info = RuntimeInfo {
        name: "io.containerd.husk.v1".to_owned(),
        version: Some(RuntimeVersion {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: commit().to_owned(),
        }),
        options: any.map(|_| Any::new(Options::TYPE, &options)),
        features: Some(Any {
            type_url: "types.containerd.io/opencontainers/runtime-spec/1/features/Features".to_owned(),
            value: features,
        }),
    };
    crate::print(&info.encode_to_vec())
}
