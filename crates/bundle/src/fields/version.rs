//! Checks `ociVersion`.

use crate::error::{Error, ErrorKind, Field, Notice, Warning};

/// The newest version of the specification that husk implements, without its patch number.
const NEWEST: (u32, u32) = (1, 3);

/// Refuses another major version, whose fields may have other meanings, and notes newer minor ones.
pub(crate) fn check(version: &str, warnings: &mut Vec<Warning>) -> Result<(), Error> {
    let field = Field::new("ociVersion");
    if version.is_empty() {
        // Absent, which runc accepts.
        return Ok(());
    }
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().ok());
    let (major, minor) = (numbers.next().flatten(), numbers.next().flatten());
    if major != Some(NEWEST.0) {
        return Err(field.error(ErrorKind::Version(version.to_owned())));
    }
    if minor.is_some_and(|minor| minor > NEWEST.1) {
        // The specification promises that a newer minor version has the same meaning.
        let text = format!("{version:?} is newer than 1.3, so husk may ignore some fields");
        warnings.push(Warning { notice: Notice::OnRequest, field, text });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn other_major_version_is_refused_and_newer_minor_version_noted() {
        let told = |version| {
            let mut warnings = Vec::new();
            check(version, &mut warnings).map(|()| warnings.len()).map_err(|error| error.to_string())
        };
        for (version, notes) in
            [("1.0.2", 0), ("1.3.0", 0), ("1.2.0-rc.1", 0), ("1", 0), ("", 0), ("1.4.0", 1)]
        {
            assert_eq!(told(version), Ok(notes), "{version}");
        }
        for version in ["9.0.0", "0.9.0", "latest", "-1.0"] {
            assert_eq!(
                told(version),
                Err(format!("ociVersion: {version:?} is not supported; husk implements version 1.3")),
            );
        }
    }
}
