//! stub
use crate::failure::{Code, Failure};
use crate::wire::Any;
use husk_runtime::Store;
pub(crate) fn metrics(_: &Store, _: &str) -> Result<Any, Failure> {
    Err(Failure::new(Code::Unimplemented, "stub"))
}
