//! The parts of a running process: each is started after those that it needs, and all end in the reverse order.
//!
//! The end has two phases. First every part is told to end, so that clients see the process leave at once and no part waits
//! for another that still takes requests; then each is waited for.

/// A part of a running process, as far as its end is concerned.
pub struct Component {
    name: &'static str,
    tell: Option<Box<dyn FnOnce() + Send + Sync>>,
    end: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Component {
    /// A part whose end needs nothing yet.
    pub fn new(name: &'static str) -> Component {
        Component { name, tell: None, end: None }
    }

    /// What tells it to end, without waiting for anything that other parts do.
    pub fn tell(self, tell: impl FnOnce() + Send + Sync + 'static) -> Component {
        Component { tell: Some(Box::new(tell)), ..self }
    }

    /// What ends it: returns when it has ended.
    pub fn end(self, end: impl FnOnce() + Send + Sync + 'static) -> Component {
        Component { end: Some(Box::new(end)), ..self }
    }
}

/// The parts of a process in the order in which they were started.
#[derive(Default)]
pub struct Components(Vec<Component>);

impl Components {
    /// Adds a part that was started after all others.
    pub fn add(&mut self, component: Component) {
        self.0.push(component);
    }

    /// Ends all, the last one first.
    pub fn end(mut self) {
        for component in self.0.iter_mut().rev() {
            if let Some(tell) = component.tell.take() {
                tracing::debug!("{} is told to end", component.name);
                tell();
            }
        }
        while let Some(component) = self.0.pop() {
            if let Some(end) = component.end {
                end();
                tracing::debug!("{} has ended", component.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn all_are_told_before_any_is_ended_and_the_last_goes_first() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let note = |what: &'static str| {
            let log = log.clone();
            move || log.lock().unwrap().push(what)
        };
        let mut components = Components::default();
        components.add(Component::new("a").tell(note("tell a")).end(note("end a")));
        components.add(Component::new("b").end(note("end b")));
        components.add(Component::new("c").tell(note("tell c")));
        components.end();
        assert_eq!(*log.lock().unwrap(), ["tell c", "tell a", "end b", "end a"]);
    }
}
