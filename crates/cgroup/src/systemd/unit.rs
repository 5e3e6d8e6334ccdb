//! Names of units, and the paths of their cgroups.

use crate::error::SystemdError as Error;

/// Selects the systemd instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The host's systemd.
    Host,
    /// The systemd of the calling user.
    User,
}

/// A scope or slice, with the slice that contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    name: String,
    slice: String,
}

/// The longest name of a unit (systemd's `UNIT_NAME_MAX` less the final NUL).
const LONGEST_NAME: usize = 255;

const FIELD: &str = "linux.cgroupsPath";

fn wrong(reason: String) -> Error {
    Error::Field { field: FIELD.to_owned(), reason }
}

impl Unit {
    /// Parses the unit from `linux.cgroupsPath`, which has the form `slice:prefix:name`. The default is a scope
    /// for the container `id`. A name that ends with `.slice` is a slice; any other becomes the scope
    /// `prefix-name.scope`.
    ///
    /// # Errors
    ///
    /// If the path does not have three parts, or a part is not valid in a unit's name.
    pub fn new(cgroups_path: Option<&str>, id: &str, owner: Owner) -> Result<Self, Error> {
        let path = cgroups_path.filter(|path| !path.is_empty());
        let parts: Vec<&str> = path.map_or_else(|| vec!["", "husk", id], |path| path.split(':').collect());
        let [slice, prefix, name] = *parts.as_slice() else {
            return Err(wrong(format!(
                "expected cgroupsPath to be of format \"slice:prefix:name\" for systemd cgroups, got {:?} instead",
                path.unwrap_or_default()
            )));
        };
        let slice = match (slice, owner) {
            ("", Owner::Host) => "system.slice",
            ("", Owner::User) => "user.slice",
            (slice, _) => slice,
        };
        let name = if name.ends_with(".slice") { name.to_owned() } else { format!("{prefix}-{name}.scope") };
        let valid = |name: &str| {
            let known = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
            name.len() <= LONGEST_NAME && name.bytes().all(known)
        };
        if !valid(&name) {
            return Err(wrong(format!("{name:?} is not a valid name for a unit")));
        }
        let unit = Self { name, slice: slice.to_owned() };
        expand(&unit.slice)?;
        Ok(unit)
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the slice that contains the unit.
    #[must_use]
    pub fn slice(&self) -> &str {
        &self.slice
    }

    /// Returns whether the unit itself is a slice.
    #[must_use]
    pub fn is_slice(&self) -> bool {
        self.name.ends_with(".slice")
    }

    /// Returns the unit's cgroup as an absolute path in the tree, for [`Layout::place`](crate::Layout::place).
    /// `manager` is the manager's own cgroup: the root for the host's systemd.
    ///
    /// # Errors
    ///
    /// If the slice's name is invalid.
    pub fn cgroup(&self, manager: &str) -> Result<String, Error> {
        let manager = manager.trim_end_matches('/');
        Ok(format!("{manager}{}/{}", expand(&self.slice)?, self.name))
    }
}

/// Returns the path of a slice. Dashes in its name separate the slices that contain it: `a-b.slice` is at
/// `/a.slice/a-b.slice`.
fn expand(slice: &str) -> Result<String, Error> {
    let invalid = || wrong(format!("invalid slice name: {slice}"));
    let name = slice.strip_suffix(".slice").filter(|name| !name.is_empty() && !name.contains('/'));
    let name = name.ok_or_else(invalid)?;
    let mut path = String::new();
    if name == "-" {
        return Ok(path);
    }
    let mut prefix = String::new();
    for component in name.split('-') {
        if component.is_empty() {
            return Err(invalid());
        }
        prefix.push_str(component);
        path.push_str(&format!("/{prefix}.slice"));
        prefix.push('-');
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_path_has_three_parts() {
        let unit = |path| Unit::new(path, "id", Owner::Host).map(|unit| unit.cgroup("/").unwrap());
        let table = [
            (Some("machine.slice:libpod:1234"), "/machine.slice/libpod-1234.scope"),
            (Some(":docker:x"), "/system.slice/docker-x.scope"),
            (
                Some("kubepods-burstable-pod1.slice:cri:a"),
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-a.scope",
            ),
            (Some("-.slice:x:y"), "/x-y.scope"),
            (Some("a.slice::b.slice"), "/a.slice/b.slice"),
            (None, "/system.slice/husk-id.scope"),
            (Some(""), "/system.slice/husk-id.scope"),
        ];
        for (path, expected) in table {
            assert_eq!(unit(path).unwrap(), expected, "{path:?}");
        }
        let user = Unit::new(None, "id", Owner::User).unwrap();
        let manager = "/user.slice/user-1000.slice/user@1000.service";
        assert_eq!(user.cgroup(manager).unwrap(), format!("{manager}/user.slice/husk-id.scope"));
    }

    #[test]
    fn invalid_unit_path_is_refused() {
        let table = [
            (
                "/a/b",
                "expected cgroupsPath to be of format \"slice:prefix:name\" for systemd cgroups, got \"/a/b\" instead",
            ),
            ("a.slice:b:c:d", "expected cgroupsPath to be of format"),
            ("a:b:c", "invalid slice name: a"),
            ("a--b.slice:b:c", "invalid slice name: a--b.slice"),
            ("../x.slice:b:c", "invalid slice name: ../x.slice"),
            (".slice:b:c", "invalid slice name: .slice"),
            ("a.slice:b:../c", "\"b-../c.scope\" is not a valid name for a unit"),
        ];
        for (path, message) in table {
            let error = Unit::new(Some(path), "id", Owner::Host).unwrap_err().to_string();
            assert!(error.starts_with(&format!("linux.cgroupsPath: {message}")), "{error}");
        }
    }
}
