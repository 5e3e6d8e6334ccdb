//! Plans `linux.maskedPaths` and `linux.readonlyPaths`.

use crate::builder::{Builder, Error, mode};
use husk_bundle::Container;
use husk_script::sys::file::OFlags;
use husk_script::{Reg, Step};
use std::path::Path;

pub(crate) fn cover(container: &Container, root: Reg, plan: &mut Builder<'_>) -> Result<(), Error> {
    if !container.masked_paths.is_empty() {
        plan.at("linux.maskedPaths");
        let null = plan.register()?;
        let empty = plan.fresh_register()?;
        plan.push(Step::Open { path: c"/dev/null", flags: OFlags::PATH, mode: mode(0), out: null });
        for (index, path) in container.masked_paths.iter().enumerate() {
            plan.at(format!("linux.maskedPaths[{index}]"));
            let path = relative(path, plan)?;
            plan.push(Step::Mask { root: root.into(), path, null: null.into(), empty });
        }
        plan.at("linux.maskedPaths");
        plan.release(null);
    }
    Ok(())
}

pub(crate) fn read_only(container: &Container, root: Reg, plan: &mut Builder<'_>) -> Result<(), Error> {
    for (index, path) in container.readonly_paths.iter().enumerate() {
        plan.at(format!("linux.readonlyPaths[{index}]"));
        let path = relative(path, plan)?;
        plan.push(Step::ReadOnly { root: root.into(), path });
    }
    Ok(())
}

fn relative<'b>(path: &Path, plan: &Builder<'b>) -> Result<&'b std::ffi::CStr, Error> {
    Ok(plan.target(path)?.path)
}
