//! A run of `husk test`, and the sandbox that its options describe.

use super::cache;
use super::configured::Configured;
use super::options::{Test, Tests};
use super::report::{Destinations, Named, Report};
use crate::exit::Exit;
use crate::image::Images;
use crate::output::{self, escape};
use crate::session::Session;
use anyhow::{Result, bail};
use husk_hermetic::{Cache, Caller, Division, Durations, Isolation, Profile, Root, Tools};
use husk_image::Held;

/// A run of `husk test`.
pub(super) struct Run<'r> {
    /// The options for all tests.
    pub(super) test: Test,
    /// The options for some tests, if husk.toml exists.
    pub(super) configured: Option<&'r Configured<'r>>,
    pub(super) how: Isolation,
    pub(super) tools: Tools,
    pub(super) profile: Profile,
    pub(super) durations: Option<Durations>,
    pub(super) cache: Option<Cache>,
    pub(super) session: &'r Session<'r>,
    /// Keeps a bundle's layers in the store.
    _held: Option<Held>,
}

impl<'r> Run<'r> {
    /// Finds and creates everything that the sandbox needs.
    pub(super) fn prepare(
        test: Test,
        configured: Option<&'r Configured<'r>>,
        images: &Images,
        session: &'r Session<'r>,
    ) -> Result<Self> {
        // Before the profile, which excludes the store's directory.
        let cache = cache::open(&test, session)?;
        let (of_bundle, held) = of_bundle(&test, images, session)?;
        // An image has its own tools.
        let has_image = test.rare.rootfs.is_some() || of_bundle.image.is_some();
        let caller = || Caller { wants_caches: test.rare.keep_caches, ..Caller::of(&test.program) };
        let tools = if has_image { Tools::default() } else { Tools::find(&caller()) };
        let mut profile = test.clone().profile(of_bundle, &tools);
        if !test.rare.plan {
            husk_hermetic::create_outputs(&profile);
        }
        husk_hermetic::show_outputs(&mut profile).iter().for_each(|warning| session.log.warning(warning));
        let durations = test.tests.durations(session)?;
        let how = if test.rare.strict { Isolation::Strict } else { Isolation::Possible };
        Ok(Self { test, configured, how, tools, profile, durations, cache, session, _held: held })
    }

    pub(super) fn perform(self) -> Result<Exit> {
        let Tests { each, tap, .. } = *self.test.tests;
        match (self.test.runner, each.is_some() || tap) {
            (true, _) => self.binary(),
            (_, true) => self.suite(),
            _ => self.program(),
        }
    }

    /// Opens the reports of tests with these names.
    pub(super) fn report(&self, named: fn(&Profile, Option<(usize, usize)>) -> Named) -> Result<Report> {
        let tests: &Tests = &self.test.tests;
        tests.refuse_reports(&self.profile)?;
        let mut names = named(&self.profile, tests.shard);
        names.durations = self.durations.as_ref().map(Durations::digest);
        let Tests { json, junit, html, .. } = tests;
        let (json, junit, html) = (json.as_deref(), junit.as_deref(), html.as_deref());
        Report::begin(names, Destinations { json, junit, html })
    }

    /// Returns which tests of this suite belong to this machine.
    pub(super) fn division<'d>(&'d self, suite: &'d str) -> Division<'d> {
        Division { suite, shard: self.test.tests.shard, durations: self.durations.as_ref() }
    }

    /// Prints the tools that were found, and these steps.
    pub(super) fn print_plan(&self, steps: &str) -> Result<Exit> {
        print_text(&(found(&self.tools) + steps))
    }
}

/// Prints text whose names the program may have chosen.
pub(super) fn print_text(text: &str) -> Result<Exit> {
    output::print(&*escape::text(text))?;
    Ok(Exit::Success)
}

/// Returns the profile of the options' bundle or image, and a lock that keeps a bundle's layers in the store.
pub(super) fn of_bundle(
    test: &Test,
    images: &Images,
    session: &Session<'_>,
) -> Result<(Profile, Option<Held>)> {
    if let Some(image) = &test.rare.image {
        let profile = images.profile(image)?;
        if test.program.is_empty() && profile.args.is_empty() {
            bail!("image {}: names no program; give one after '--'", image.display());
        }
        return Ok((profile, None));
    }
    let Some(directory) = &test.rare.bundle else { return Ok(Default::default()) };
    let (profile, warnings) = husk_hermetic::bundle(directory)?;
    warnings.iter().for_each(|warning| session.log.warning(warning));
    let held = match profile.image.as_ref().map(|image| &image.root) {
        Some(Root::Layers(layers)) => husk_image::hold(layers)?,
        _ => None,
    };
    Ok((profile, held))
}

/// Returns the lines that name the tools that were found, and what is not shown.
fn found(tools: &Tools) -> String {
    let mut text = String::new();
    if !tools.found.is_empty() {
        text = format!("tools: {tools}\n");
    }
    for (path, why) in &tools.refused {
        text += &format!("hidden: {} ({why})\n", path.display());
    }
    text
}
