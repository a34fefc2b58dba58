//! One hook: observe, plan, apply, until there is nothing left to do; then say what was seen.

use crate::actions::{self, Action, Answer};
use crate::apply::Applier;
use crate::event::{Context, Event, Goal};
use crate::host::fs::{self, Root};
use crate::juju::memory::{Memory, Stale};
use crate::juju::{read, tools};
use crate::observe::{Kept, Session, observe};
use crate::paths;
use crate::plan::plan;
use crate::status::status;
use crate::step::Step;
use crate::view::gpu::told;
use crate::world::World;
use anyhow::{Context as _, Result, bail};
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;

/// A deployment from nothing takes seven; a world that still changes after this many is not being understood.
const PASSES: usize = 16;

/// Runs the hook or action that `context` tells of.
///
/// # Errors
/// The unexpected: Juju shows it and runs the hook again.
pub fn run(root: &Root, context: &Context) -> Result<()> {
    let mut session = Session::default();
    let charm = charm_identity(Path::new(&context.charm_dir));
    let kept = fs::read(&root.path(paths::MEMORY))?.unwrap_or_default();
    let known: Option<Memory> = serde_json::from_str(&kept).ok();
    let whole = known.is_some();
    let mut memory = known.unwrap_or_default();
    session.stale = memory.note(context, &charm);
    read::refresh(&mut memory, context, &session.stale)?;
    memory.charm = charm;
    session.memory = Rc::new(memory);
    // What no event tells anything about is what it was, and need not become text to be seen as that.
    let untouched = session.stale == Stale::default() && !matches!(context.event, Event::Relation(_));
    session.kept = if whole && untouched { Kept::Memory(session.memory.clone()) } else { Kept::Text(kept) };

    let done = match &context.event {
        Event::Action(name) => action(root, context, &mut session, name),
        event => reconcile(root, context, &mut session, event.goal())
            .and_then(|world| report(root, event.goal(), &world)),
    };
    if done.is_err() {
        // Juju takes back what this hook wrote to it, secrets among it: they are read again.
        Rc::make_mut(&mut session.memory).secrets.clear();
    }
    keep(root, context, &mut session)?;
    done
}

/// Applies plans until one is empty.
fn reconcile(root: &Root, context: &Context, session: &mut Session, goal: Goal) -> Result<World> {
    let mut last = vec![];
    for _ in 0..PASSES {
        let world = observe(root, context, session)?;
        let steps = plan(goal, &world);
        if steps.is_empty() {
            return Ok(world);
        }
        if goal != Goal::Remove {
            // What was read so far is not read again, should this hook be cut off.
            keep(root, context, session)?;
        }
        last = steps.iter().map(ToString::to_string).collect();
        apply(root, context, session, &world, &steps)?;
    }
    bail!("the machine does not come to rest; still to do: {}", last.join(", "))
}

/// Applies steps up to the first that meets trouble; the next plan knows of it.
fn apply(root: &Root, context: &Context, session: &mut Session, world: &World, steps: &[Step]) -> Result<()> {
    tools::log(
        "DEBUG",
        &format!("plan: {}", steps.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    );
    for step in steps {
        let outcome = Applier { root, context, session, world }
            .apply(step)
            .with_context(|| format!("failed to {step}"))?;
        if let Err(trouble) = outcome {
            let Some(concern) = step.concern() else { bail!("failed to {step}: {}", trouble.0) };
            tools::log("WARNING", &format!("{step}: {}", trouble.0));
            session.troubles.insert(concern, trouble.0);
            break;
        }
    }
    Ok(())
}

/// The end of a unit's life has no status of its own: Juju sets one.
fn report(root: &Root, goal: Goal, world: &World) -> Result<()> {
    if goal == Goal::Run {
        let status = status(world);
        tools::status_set(status.level.word(), &status.message)?;
        // After it was told, and not before: a hook that is cut off here is made good by another one.
        if let Some(told) = told(world) {
            fs::write_atomic(&root.path(paths::GPU_TOLD), told.as_bytes(), 0o644, None)?;
        }
    }
    Ok(())
}

fn action(root: &Root, context: &Context, session: &mut Session, name: &str) -> Result<()> {
    let action = match Action::parse(name, &tools::action_get()?) {
        Ok(action) => action,
        Err(why) => return tools::action_fail(&why),
    };
    let before = observe(root, context, session)?;
    let answer = match actions::steps(&action, &before) {
        Err(why) => Answer::failed(why),
        Ok(steps) if steps.is_empty() && action.only_looks() => actions::answer(&action, &before),
        Ok(steps) => {
            apply(root, context, session, &before, &steps)?;
            let after = reconcile(root, context, session, Goal::Run)?;
            report(root, Goal::Run, &after)?;
            actions::answer(&action, &after)
        }
    };
    if !answer.results.is_empty() {
        tools::action_set(&answer.results)?;
    }
    if let Some(secret) = &answer.output {
        // Results are arguments of a tool, which every user of the machine can read; standard output is not.
        print!("{}", secret.expose());
    }
    answer.failure.map_or(Ok(()), |why| tools::action_fail(&why))
}

/// Not after a removal: it would be the one thing left behind.
fn keep(root: &Root, context: &Context, session: &mut Session) -> Result<()> {
    if context.event.goal() == Goal::Remove {
        return Ok(());
    }
    let mut memory = session.memory.clone();
    if !session.replaced.is_empty() {
        Rc::make_mut(&mut memory).secrets.retain(|id, _| !session.replaced.contains(id));
    }
    let unchanged = match &session.kept {
        // The same one is equal without a look inside.
        Kept::Memory(kept) => *kept == memory,
        Kept::Text(kept) => is_text_of(kept, &memory),
    };
    if !unchanged {
        let text = serde_json::to_string(&*memory)?;
        fs::write_atomic(&root.path(paths::MEMORY), text.as_bytes(), 0o600, None)?;
    }
    session.kept = Kept::Memory(memory);
    Ok(())
}

/// Whether `memory` as text is this text, without the making of another one: with a thousand workers it is long.
fn is_text_of(text: &str, memory: &Memory) -> bool {
    struct Rest<'a>(&'a [u8]);
    impl Write for Rest<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.strip_prefix(bytes).ok_or(io::ErrorKind::InvalidData)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut rest = Rest(text.as_bytes());
    serde_json::to_writer(&mut rest, memory).is_ok() && rest.0.is_empty()
}

/// Tells one charm from another, also after an upgrade out of an error, which runs no upgrade-charm.
fn charm_identity(dir: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(dir.join("dispatch"))
        .map(|meta| format!("{}-{}-{}-{}", meta.size(), meta.ino(), meta.ctime(), meta.ctime_nsec()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_is_told_from_any_other_by_its_text() {
        let mut memory = Memory { charm: "c".into(), ..Memory::default() };
        memory.set_members("web-tsa", "web-tsa:1", &["worker/0".into()]);
        let text = serde_json::to_string(&memory).unwrap();
        assert!(is_text_of(&text, &memory));
        for other in ["", &text[..text.len() - 1], &format!("{text} "), &text.replace("\"c\"", "\"d\"")] {
            assert!(!is_text_of(other, &memory), "{other}");
        }
        memory.departed.insert("worker-0".into());
        assert!(!is_text_of(&text, &memory));
    }
}
