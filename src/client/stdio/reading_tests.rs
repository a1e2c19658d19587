use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use tokio::io::AsyncReadExt as _;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::client::stdio::pipe::Pipe;

/// Longest time that a test waits for an event.
const PATIENCE: Duration = Duration::from_secs(20);

/// A read: the thread that made it, and the bytes.
type Read = (ThreadId, Vec<u8>);

/// A reader of a pipe, with its task on a runtime.
struct Setting {
    runtime: Runtime,
    input: Option<OwnedFd>,
    reading: Arc<Reading>,
    task: JoinHandle<()>,
    read: Receiver<Read>,
    is_dropped: Arc<AtomicBool>,
}

/// Sets a flag when the reader is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Reads up to `at_once` bytes at a time, and reports each read.
async fn read_all(mut pipe: Pipe, at_once: usize, read: Sender<Read>) {
    let mut piece = vec![0; at_once];
    while let Ok(count @ 1..) = pipe.read(&mut piece).await {
        read.send((std::thread::current().id(), piece[..count].to_vec())).unwrap();
    }
}

impl Setting {
    fn new<F: Future<Output = ()> + Send + 'static>(reader: impl FnOnce(Pipe, Sender<Read>) -> F) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let entered = runtime.enter();
        let (output, input) = rustix::pipe::pipe().unwrap();
        let pipe = Pipe::new(output).unwrap();
        let (control, is_dropped, (sender, read)) = (pipe.control(), Arc::<AtomicBool>::default(), channel());
        let (reader, dropped) = (reader(pipe, sender), Dropped(Arc::clone(&is_dropped)));
        let reader = async move {
            let _dropped = dropped;
            reader.await;
        };
        let (reading, task) = Reading::new(reader, control);
        let task = runtime.spawn(task);
        drop(entered);
        Self { runtime, input: Some(input), reading, task, read, is_dropped }
    }

    fn write(&self, bytes: &[u8]) {
        assert_eq!(rustix::io::write(self.input.as_ref().unwrap(), bytes), Ok(bytes.len()));
    }

    /// Returns the next read.
    fn next(&self) -> Read {
        self.read.recv_timeout(PATIENCE).unwrap()
    }

    /// Takes the lead as soon as the task waits for the pipe.
    fn lead(&self) -> Box<dyn Lead> {
        let until = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < until, "the task never waits for the pipe");
            if let Some(lead) = Arc::clone(&self.reading).lead() {
                return lead;
            }
            std::thread::yield_now();
        }
    }
}

fn is_readable(lead: &dyn Lead) -> bool {
    let mut one = [PollFd::from_borrowed_fd(lead.descriptor(), PollFlags::IN)];
    poll(&mut one, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

fn read(lead: &mut dyn Lead) -> bool {
    lead.read(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn whoever_leads_reads_and_before_and_after_the_runtime_does() {
    let setting = Setting::new(|pipe, sender| read_all(pipe, 1024, sender));
    let here = std::thread::current().id();
    let elsewhere = |(thread, bytes): Read| (thread != here, bytes);
    setting.write(b"before");
    assert_eq!(elsewhere(setting.next()), (true, b"before".to_vec()));
    for _ in 0..200 {
        let mut lead = setting.lead();
        assert!(!is_readable(&*lead));
        setting.write(b"led");
        assert!(is_readable(&*lead) && Arc::clone(&setting.reading).lead().is_none());
        assert!(read(&mut *lead));
        assert_eq!(setting.read.try_recv().map(elsewhere), Ok((false, b"led".to_vec())));
        // These bytes arrive while nothing polls the pipe.
        setting.write(b"left");
        drop(lead);
        assert_eq!(elsewhere(setting.next()), (true, b"left".to_vec()));
        setting.write(b"after");
        assert_eq!(elsewhere(setting.next()), (true, b"after".to_vec()));
    }
}

#[test]
fn a_flood_keeps_nobody_who_leads_and_is_read_by_the_runtime() {
    let setting = Setting::new(|pipe, sender| read_all(pipe, 64, sender));
    // The runtime handles an event first, so that the epoll set lists the pipe as ready.
    setting.write(b"first");
    setting.next();
    let mut lead = setting.lead();
    setting.write(&[b'x'; 3 * 1024]);
    assert!(read(&mut *lead));
    let led: usize = setting.read.try_iter().map(|(_, bytes)| bytes.len()).sum();
    assert_eq!(led, 32 * 64);
    drop(lead);
    let mut left = 1024;
    while left > 0 {
        left -= setting.next().1.len();
    }
}

#[test]
fn a_pipe_that_ends_under_somebody_who_leads_ends_the_reader_and_its_task() {
    let mut setting = Setting::new(|pipe, sender| read_all(pipe, 1024, sender));
    let mut lead = setting.lead();
    setting.input = None;
    assert!(is_readable(&*lead) && !read(&mut *lead));
    assert!(setting.is_dropped.load(Ordering::Acquire));
    drop(lead);
    setting.runtime.block_on(setting.task).unwrap();
    assert!(setting.reading.lead().is_none());
}

#[test]
fn a_task_that_ends_under_somebody_who_leads_takes_the_reader_with_it() {
    let setting = Setting::new(|pipe, sender| read_all(pipe, 1024, sender));
    let mut lead = setting.lead();
    setting.task.abort();
    assert!(setting.runtime.block_on(setting.task).unwrap_err().is_cancelled());
    assert!(setting.is_dropped.load(Ordering::Acquire));
    assert!(!read(&mut *lead));
    drop(lead);
    assert!(setting.reading.lead().is_none());
}

#[test]
fn a_reader_that_waits_for_something_else_is_the_tasks() {
    let (go_on, going_on) = oneshot::channel::<()>();
    let setting = Setting::new(|mut pipe, sender| async move {
        pipe.read_u8().await.unwrap();
        going_on.await.unwrap();
        read_all(pipe, 1024, sender).await;
    });
    let mut lead = setting.lead();
    setting.write(b"1");
    assert!(!read(&mut *lead), "the reader does not wait for the pipe");
    drop(lead);
    assert!(Arc::clone(&setting.reading).lead().is_none());
    go_on.send(()).unwrap();
    setting.write(b"2");
    assert_eq!(setting.next().1, b"2");
}

#[test]
fn a_panic_under_somebody_who_leads_ends_the_reader_and_its_task() {
    let setting = Setting::new(|mut pipe, _| async move {
        pipe.read_u8().await.unwrap();
        panic!("on purpose");
    });
    let mut lead = setting.lead();
    setting.write(b"1");
    assert!(!read(&mut *lead));
    assert!(setting.is_dropped.load(Ordering::Acquire));
    drop(lead);
    setting.runtime.block_on(setting.task).unwrap();
}

#[test]
fn a_server_that_never_stops_writing_leaves_the_runtime_to_others() {
    let mut setting = Setting::new(|mut pipe, _| async move {
        let mut piece = vec![0; 1024];
        while matches!(pipe.read(&mut piece).await, Ok(1..)) {}
    });
    let input = setting.input.take().unwrap();
    // Write until the pipe has no more reader.
    let writing = std::thread::spawn(move || while rustix::io::write(&input, &[b'x'; 1024]).is_ok() {});
    let other = setting.runtime.spawn(async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    });
    setting.runtime.block_on(async { tokio::time::timeout(PATIENCE, other).await }).unwrap().unwrap();
    setting.task.abort();
    assert!(setting.runtime.block_on(async { tokio::time::timeout(PATIENCE, setting.task).await }).unwrap().unwrap_err().is_cancelled());
    writing.join().unwrap();
}
