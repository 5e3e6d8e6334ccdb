//! Rejects reports in places that a test could change.

use super::options::Tests;
use super::report;
use anyhow::{Context as _, Result, bail};
use husk_hermetic::{PathAccess, Profile, Root, Show};
use std::fs;
use std::path::{self, PathBuf};

impl Tests {
    /// Rejects reports in a directory that tests may write to. A test could replace or change them there.
    pub(super) fn refuse_reports(&self, profile: &Profile) -> Result<()> {
        if [&self.json, &self.junit, &self.html, &self.cache].iter().all(|report| report.is_none()) {
            return Ok(());
        }
        let written = written(profile)?;
        let reports = [
            ("--json", &self.json),
            ("--junit", &self.junit),
            ("--html", &self.html),
            ("--cache", &self.cache),
        ];
        for (option, report) in reports {
            let Some(report) = report.as_ref().filter(|report| report::descriptor(report).is_none()) else {
                continue;
            };
            // The existing part of the path; the rest will be created.
            let there = path::absolute(report).with_context(|| format!("find {}", report.display()))?;
            let there = there.ancestors().skip(1).find_map(|above| fs::canonicalize(above).ok());
            let place = there.zip(report.file_name()).map(|(there, name)| there.join(name));
            if let Some(within) =
                written.iter().find(|path| place.iter().any(|place| place.starts_with(path)))
            {
                let by = if profile.image.is_some() { "" } else { "--write " };
                bail!(
                    "{option} {}: is in {by}{}, where a test could change it; choose another directory",
                    report.display(),
                    within.display()
                );
            }
        }
        Ok(())
    }
}

/// Returns the paths that the program may write to.
pub(super) fn written(profile: &Profile) -> Result<Vec<PathBuf>> {
    if let Some(image) = &profile.image {
        // The paths that --write names are in the image.
        let Root::Directory(directory) = &image.root else { return Ok(Vec::new()) };
        let found = fs::canonicalize(directory).with_context(|| format!("open {}", directory.display()))?;
        return Ok(vec![found]);
    }
    let written = profile.shown.iter().filter(|show| show.access == PathAccess::Write);
    let canonical =
        |show: &Show| fs::canonicalize(&show.path).with_context(|| format!("find {}", show.path.display()));
    written.map(canonical).collect()
}
