//! The agent's connection to the controller, which may go and come back at any time.

use crate::tools::{ToolReply, ToolRequest};
use crate::wire::{FromAgent, send};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What is known of the connection.
#[derive(Default)]
struct State {
    stream: Option<TcpStream>,
    /// Questions without an answer yet: they are asked again after a reconnection.
    asked: HashMap<u64, (FromAgent, Sender<ToolReply>)>,
    next: u64,
}

/// The connection; shared by all threads of the agent.
pub struct Link {
    controller: String,
    state: Mutex<State>,
    up: Condvar,
}

impl Link {
    /// A link that is not connected yet.
    pub fn new(controller: &str) -> Link {
        Link { controller: controller.into(), state: Mutex::default(), up: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection is there, and greeted.
    pub fn connected(&self, stream: TcpStream) -> io::Result<()> {
        let mut state = self.lock();
        let mut writer = stream.try_clone()?;
        for (question, _) in state.asked.values() {
            send(&mut writer, question)?;
        }
        state.stream = Some(stream);
        self.up.notify_all();
        Ok(())
    }

    /// The connection is gone.
    pub fn lost(&self) {
        self.lock().stream = None;
    }

    /// Says something; waits until there is a connection.
    pub fn say(&self, message: &FromAgent) {
        let mut state = self.lock();
        loop {
            if let Some(stream) = &mut state.stream {
                if send(stream, message).is_ok() {
                    return;
                }
                state.stream = None;
            }
            state = self.up.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn ask(&self, question: impl FnOnce(u64) -> FromAgent) -> Receiver<ToolReply> {
        let (sender, receiver) = channel();
        let mut state = self.lock();
        state.next += 1;
        let seq = state.next;
        let question = question(seq);
        let sent = state.stream.as_mut().is_some_and(|stream| send(stream, &question).is_ok());
        if !sent {
            state.stream = None;
        }
        state.asked.insert(seq, (question, sender));
        receiver
    }

    /// Asks the controller what a tool answers.
    pub fn call(&self, request: ToolRequest) -> ToolReply {
        let answer = self.ask(|seq| FromAgent::Call { seq, request });
        answer.recv().unwrap_or_default()
    }

    /// Asks the controller to have commands run.
    pub fn exec(&self, unit: String, script: String) -> ToolReply {
        let answer = self.ask(|seq| FromAgent::Exec { seq, unit, script });
        answer.recv().unwrap_or_default()
    }

    /// An answer has come.
    pub fn answered(&self, seq: u64, reply: ToolReply) {
        if let Some((_, sender)) = self.lock().asked.remove(&seq) {
            // Who asked may be gone.
            let _ = sender.send(reply);
        }
    }

    /// Fetches a blob into a file.
    pub fn fetch(&self, blob: &str, target: &Path) -> io::Result<()> {
        let mut stream = TcpStream::connect(&self.controller)?;
        send(&mut stream, &FromAgent::Fetch { blob: blob.into() })?;
        let mut reader = BufReader::new(stream);
        let size: u64 = crate::wire::receive(&mut reader)?.ok_or_else(|| io::Error::other("no such blob"))?;
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder)?;
        }
        let new = target.with_extension("fetching");
        let mut file = File::create(&new)?;
        let copied = io::copy(&mut reader.take(size), &mut file)?;
        file.flush()?;
        if copied != size {
            return Err(io::Error::other("the connection ended in the middle of a blob"));
        }
        fs::rename(&new, target)
    }
}
