//! Starts a server in a box. Starts the program `hyperlight-mcp-box`, and sends it an order that describes the box and the server. Receives
//! the sockets of the box's network from this program, and waits for the program's report.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, PipeReader};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg,
    sendmsg,
};
use secrecy::ExposeSecret as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;

use super::pipe::Pipe;
use crate::boxes::border::{Border, BorderSettings, Descriptors, MAX_SOCKETS};
use crate::boxes::{Contents, Order, Report};
use crate::client::threads::border_threads;
use crate::config::ResolvedCommand;
use crate::error::{Error, Result};
use crate::fetch::SystemResolver;
use crate::network::NetworkRuntime;

/// Longest wait until a box is ready. A box is normally ready within milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum size in bytes of the report of `hyperlight-mcp-box`.
const MAX_REPORT_BYTES: usize = 8 * 1024;

/// The box of a server.
#[derive(Clone)]
pub struct Boxed {
    /// The path of the program `hyperlight-mcp-box`, which is shipped beside the addon.
    pub program: PathBuf,
    pub contents: Contents,
    pub border: BorderSettings,
    /// The threads that carry the network traffic of boxes.
    pub(crate) threads: Arc<NetworkRuntime>,
    /// The lock of the server's private home folder. It is held as long as the server runs.
    pub(crate) home: Option<Arc<File>>,
    /// The value that is kept until the box has no processes any more.
    pub(crate) alive: KeptAlive,
}

/// A value that a box keeps. It is kept from the time before the box is made until the last process of the box has ended.
#[derive(Clone)]
pub(crate) struct KeptAlive(#[expect(dead_code, reason = "counts the copies of this value")] Arc<()>);

/// A weak reference that shows whether a box still keeps its [`KeptAlive`].
pub(crate) struct Life(Weak<()>);

impl KeptAlive {
    pub(crate) fn new() -> (Self, Life) {
        let value = Arc::new(());
        let life = Life(Arc::downgrade(&value));
        (Self(value), life)
    }
}

impl Life {
    /// Returns whether the box has not been made yet or still has processes.
    pub(crate) fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// A started `hyperlight-mcp-box` that waits for its order: the description of the box and of the server to start.
pub(super) struct Waiting {
    socket: StdUnixStream,
    /// The read end of the pipe that becomes the server's standard input.
    input: PipeReader,
}

impl Boxed {
    /// Returns a box without a list of allowed hosts, for contents that share the machine's network.
    #[must_use]
    pub fn new(program: PathBuf, contents: Contents) -> Self {
        let border = BorderSettings {
            hosts: BTreeSet::new(),
            start_hosts: BTreeSet::new(),
            resolver: Arc::new(SystemResolver),
            on_refused: Arc::new(|_| {}),
            descriptors: Descriptors::of_process(),
        };
        Self { program, contents, border, threads: Arc::new(border_threads()), home: None, alive: KeptAlive::new().0 }
    }

    /// Starts `hyperlight-mcp-box`, which makes the box when it receives its order. The returned child's `stdin` is the pipe to the server,
    /// not to `hyperlight-mcp-box`.
    pub(super) fn spawn(&self, server: &str) -> Result<(Child, Waiting)> {
        let failed = |error: std::io::Error| Error::SpawnFailed {
            server: server.to_owned(),
            command: self.program.display().to_string().into(),
            problem: error.to_string().into(),
        };
        let (socket, theirs) = StdUnixStream::pair().map_err(failed)?;
        let (input, output) = std::io::pipe().map_err(failed)?;
        let mut child = Command::new(&self.program)
            .current_dir("/")
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        child.stdin = Some(ChildStdin::from(OwnedFd::from(output)));
        Ok((child, Waiting { socket, input }))
    }

    /// Sends the order, and waits until the program is about to replace itself by the server. Returns the box's border, through which the
    /// box reaches its allowed hosts.
    ///
    /// # Errors
    /// The step that failed, and why. The server was not started.
    pub(super) async fn fill(
        &self,
        command: (&ResolvedCommand, &Path),
        waiting: Waiting,
        stdout: &mut Pipe,
    ) -> std::result::Result<Border, String> {
        let bytes = self.order(command).bytes()?;
        let exchange = async {
            let handed = hand_over(&bytes, waiting).await;
            match (read_report(stdout).await, handed) {
                (Some(Report::Ready), Ok(sockets)) => Ok(sockets),
                (Some(Report::Failed { step, problem }), _) => Err(format!("could not {step}: {problem}")),
                (_, Err(error)) => Err(format!("could not hand over its order: {error}")),
                (None, Ok(_)) => Err("it ended without a report".to_owned()),
            }
        };
        let sockets = tokio::time::timeout(PATIENCE, exchange).await.unwrap_or_else(|_| Err("it does not answer".to_owned()))?;
        let runtime = self.threads.handle().map_err(|error| error.to_string())?;
        Border::start(sockets, &self.border, &runtime).map_err(|error| format!("the network of its box cannot be set up: {error}"))
    }

    fn order(&self, (command, program): (&ResolvedCommand, &Path)) -> Order {
        let environment = command.environment.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned()));
        Order {
            contents: self.contents.clone(),
            program: command.working_directory.join(program),
            name: command.command.clone(),
            arguments: command.arguments.clone(),
            environment: environment.collect(),
            working_directory: command.working_directory.clone(),
            fails_at: None,
        }
    }
}

/// Sends the order. After it, sends one byte together with the pipe for the server's standard input. Returns the sockets that the program
/// sends back.
async fn hand_over(order: &[u8], Waiting { socket, input }: Waiting) -> std::io::Result<Vec<OwnedFd>> {
    socket.set_nonblocking(true)?;
    let mut socket = UnixStream::from_std(socket)?;
    socket.write_all(order).await?;
    socket.async_io(Interest::WRITABLE, || send_pipe(&socket, &input)).await?;
    drop(input);
    socket.async_io(Interest::READABLE, || receive_sockets(&socket)).await
}

fn send_pipe(socket: &UnixStream, input: &PipeReader) -> std::io::Result<()> {
    let given = [input.as_fd()];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&given));
    sendmsg(socket, &[IoSlice::new(b"p")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive_sockets(socket: &UnixStream) -> std::io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    // If this process has no free file descriptors, the system drops some of the sockets.
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::MFILE.into());
    }
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
        _ => None,
    });
    Ok(rights.flatten().collect())
}

/// Reads the report, and no byte after it, because the following bytes are the server's output.
async fn read_report(stdout: &mut Pipe) -> Option<Report> {
    let mut line = Vec::new();
    while line.len() < MAX_REPORT_BYTES {
        match stdout.read_u8().await.ok()? {
            b'\n' => return serde_json::from_slice(&line).ok(),
            byte => line.push(byte),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::set_socket_passcred;

    use super::*;

    fn send_sockets(socket: &StdUnixStream, count: usize) {
        let file = File::open("/dev/null").unwrap();
        let given = vec![file.as_fd(); count];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_SOCKETS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&given)));
        sendmsg(socket, &[IoSlice::new(b"b")], &mut control, SendFlags::NOSIGNAL).unwrap();
    }

    #[tokio::test]
    async fn a_border_of_which_sockets_were_lost_on_their_way_is_an_error() {
        for (is_cut, expected) in [(false, Ok(MAX_SOCKETS)), (true, Err(Errno::MFILE.raw_os_error()))] {
            let (ours, theirs) = StdUnixStream::pair().unwrap();
            // With this option, the sender's credentials come first, and leave no room for some of the sockets.
            set_socket_passcred(&ours, is_cut).unwrap();
            ours.set_nonblocking(true).unwrap();
            let ours = UnixStream::from_std(ours).unwrap();
            send_sockets(&theirs, MAX_SOCKETS);
            let received = ours.async_io(Interest::READABLE, || receive_sockets(&ours)).await;
            let received = received.map(|sockets| sockets.len()).map_err(|error| error.raw_os_error().unwrap_or_default());
            assert_eq!(received, expected, "{is_cut}");
        }
    }
}
