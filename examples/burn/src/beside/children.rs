//! Child processes, each of which works on one case with one engine.

use std::{
    env,
    ffi::OsStr,
    fs::{self, File},
    io::{self, BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use crate::worker::{MARK, Message};

/// A child process. It ends when this is dropped.
pub(crate) struct Running {
    child: Child,
    input: Option<ChildStdin>,
    messages: Receiver<Message>,
    errors: std::path::PathBuf,
    patience: Duration,
}

/// Variables that say where drivers and CubeCL keep compiled kernels. All point into the child's
/// folder.
const CACHES: [&str; 6] = [
    "HOME",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "CUDA_CACHE_PATH",
    "MESA_SHADER_CACHE_DIR",
    "__GL_SHADER_DISK_CACHE_PATH",
];

/// Variables by which a user changes CubeCL's configuration.
const SETTINGS: [&str; 3] = ["CUBECL_DEBUG_LOG", "CUBECL_DEBUG_OPTION", "CUBECL_AUTOTUNE_LEVEL"];

impl Running {
    /// Starts this program with `arguments` in `folder`, where all caches are. A message is waited
    /// for as long as `patience`.
    pub(crate) fn start<A: AsRef<OsStr>>(
        arguments: impl IntoIterator<Item = A>,
        folder: &Path,
        patience: Duration,
    ) -> io::Result<Self> {
        let errors = folder.join("stderr.txt");
        let mut command = Command::new(env::current_exe()?);
        command.args(arguments).current_dir(folder);
        for variable in CACHES {
            command.env(variable, folder);
        }
        for variable in SETTINGS {
            command.env_remove(variable);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&errors)?);
        let mut child = command.spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take().expect("standard output is piped");
        let (sender, messages) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let message = line.strip_prefix(MARK).map(serde_json::from_str);
                if let Some(Ok(message)) = message
                    && sender.send(message).is_err()
                {
                    return;
                }
            }
        });
        Ok(Self { child, input, messages, errors, patience })
    }

    /// The child's next message, or why there is none.
    pub(crate) fn message(&mut self) -> Result<Message, String> {
        self.messages.recv_timeout(self.patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                format!("no answer within {} s", self.patience.as_secs())
            }
            RecvTimeoutError::Disconnected => self.last_words(),
        })
    }

    /// Lets a child go on that waits for its turn.
    pub(crate) fn go_on(&mut self) {
        // If the child has ended, the next message says why.
        if let Some(mut input) = self.input.take() {
            let _ = input.write_all(b"\n");
        }
    }

    /// The first panic's message. A later one may only say that a thread is gone.
    fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.errors).unwrap_or_default();
        let mut lines = text.lines().skip_while(|line| !line.contains("panicked at")).skip(1);
        let panic = lines.next().or(text.lines().last());
        panic.unwrap_or("the process ended without a word").trim().chars().take(200).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A child that has ended already is no error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
