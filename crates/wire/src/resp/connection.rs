//! One connection: what has been read is decided in order, and answered by one write.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Sleep, sleep, timeout};
use tollgate::Throttler;

use super::Resp;
use super::command::{self, Command, CommandError, ParsedCommand, ThrottleCommand, ThrottleDialect};
use super::frame::{Arguments, Parser};
use super::handlers::{self, AfterReply, ClientState};
use super::reply::Replies;
use crate::gate::{MAX_PENDING_THROTTLES, ThrottleBatch};
use tollgate_net::budget::Reservation;
use tollgate_net::{Closing, Slot, Stream};
use tollgate_store::Counters;

/// A client's connection, with its unanswered input.
#[derive(Debug)]
pub(super) struct RespConnection<'r> {
    resp: &'r Resp,
    stream: Stream,
    closing: Closing,
    slot: Arc<Slot>,
    buffer: BytesMut,
    /// The share of the buffer in the memory of all connections.
    reserved: Option<Reservation<'r>>,
    /// Ends when the unfinished command should have arrived; `None` if there is none.
    arrival: Option<Pin<Box<Sleep>>>,
    /// The size of a read: it grows when reads fill it.
    read_size: usize,
    parser: Parser,
    replies: Replies,
    responder: Responder,
}

/// What replies need.
#[derive(Debug)]
struct Responder {
    peer: ClientState,
    throttler: Throttler<Counters>,
    /// The throttles that were submitted and not answered: the dialect, and the burst.
    pending: Vec<(ThrottleDialect, u64)>,
}

/// Why nothing more is read.
#[derive(Debug)]
enum ReadEnd {
    /// The client or the server ends the connection.
    Closed,
    /// The unfinished command took too long.
    TooSlow,
    /// There is no memory for the rest of the unfinished command.
    NoMemory,
}

/// The next step after the replies have been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextStep {
    Read,
    /// There are more commands, but enough replies are pending.
    Answer,
    Close,
}

/// The size of a read, at first and at most.
const MIN_READ_BYTES: usize = 4 * 1024;
const MAX_READ_BYTES: usize = 64 * 1024;
/// The part of a connection's buffer that is not counted against the memory of all.
const UNCOUNTED_BYTES: usize = 2 * MIN_READ_BYTES;
/// When this many bytes of replies are pending, they are sent before more is decided, so that memory is bounded.
const MAX_PENDING_BYTES: usize = 64 * 1024;
/// After this many bytes other connections get a turn.
const MAX_TURN_BYTES: usize = 64 * 1024;
/// How long a client may take to read the last replies when the server stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// How long, and how many bytes, a closed connection is still read: unread input would make the system discard the last
/// replies.
const LINGER: Duration = Duration::from_millis(250);
const MAX_LINGER_BYTES: usize = 1024 * 1024;

impl<'r> RespConnection<'r> {
    pub(super) fn new(
        resp: &'r Resp,
        stream: Stream,
        closing: Closing,
        slot: Arc<Slot>,
        id: u64,
    ) -> RespConnection<'r> {
        let throttler = resp.gate.throttler(Resp::SPACE);
        RespConnection {
            resp,
            stream,
            closing,
            slot,
            buffer: BytesMut::new(),
            reserved: resp.arriving.reserve(0),
            arrival: None,
            read_size: MIN_READ_BYTES,
            parser: Parser::default(),
            replies: Replies::default(),
            responder: Responder { peer: ClientState::new(id), throttler, pending: Vec::new() },
        }
    }

    /// Serves until the client disconnects, is disconnected, or the server stops.
    pub(super) async fn serve(mut self) -> io::Result<()> {
        let mut turn = 0;
        loop {
            let next = self.answer().await;
            self.send().await?;
            match next {
                NextStep::Close => break,
                NextStep::Answer => tokio::task::yield_now().await,
                NextStep::Read => match self.read().await? {
                    Ok(read) => turn += read,
                    Err(end) => {
                        self.explain(&end);
                        self.send().await?;
                        break;
                    }
                },
            }
            if turn >= MAX_TURN_BYTES {
                turn = 0;
                tokio::task::yield_now().await;
            }
        }
        self.close().await
    }

    /// Decides the complete commands that have been read.
    async fn answer(&mut self) -> NextStep {
        let RespConnection { resp, slot, buffer, arrival, parser, replies, responder, .. } = self;
        let resp = *resp;
        let mut batch = resp.gate.batch();
        let waits = batch.waits();
        let (mut read, mut commands) = (0, 0);
        let next = loop {
            let rest = &buffer[read..];
            let length = match parser.next(rest) {
                Ok(Some(length)) => length,
                Ok(None) => break NextStep::Read,
                Err(malformed) => {
                    responder.flush_pending(&mut batch, replies).await;
                    replies.error("ERR", &malformed);
                    break NextStep::Close;
                }
            };
            read += length;
            let arguments = parser.arguments(rest);
            if arguments.len() == 0 {
                continue;
            }
            commands += 1;
            let then = match waits {
                false => responder.answer(arguments, resp, &mut batch, replies).await,
                // Boxed, so that the state of a command is not part of the future for stores that never wait.
                true => Box::pin(responder.answer_batched(arguments, resp, &mut batch, replies)).await,
            };
            if then == AfterReply::Close {
                break NextStep::Close;
            }
            if replies.bytes().len() >= MAX_PENDING_BYTES {
                break NextStep::Answer;
            }
        };
        responder.flush_pending(&mut batch, replies).await;
        drop(batch);
        buffer.advance(read);
        if read > 0 {
            *arrival = None;
        }
        if commands > 0 {
            slot.begin_first();
        }
        resp.counts.answered(commands);
        next
    }

    /// Sends all replies. Nothing more is read meanwhile, so a client that does not read blocks only itself.
    async fn send(&mut self) -> io::Result<()> {
        let RespConnection { stream, closing, replies, .. } = self;
        if replies.bytes().is_empty() {
            return Ok(());
        }
        {
            let mut sending = pin!(async {
                stream.write_all(replies.bytes()).await?;
                stream.flush().await
            });
            tokio::select! {
                biased;
                sent = &mut sending => sent?,
                () = closing.begun() => timeout(FLUSH_TIMEOUT, sending).await??,
            }
        }
        replies.clear();
        Ok(())
    }

    /// Reads what is available, or waits for it.
    async fn read(&mut self) -> io::Result<Result<usize, ReadEnd>> {
        if self.closing.has_begun() {
            return Ok(Err(ReadEnd::Closed));
        }
        if !self.make_room() {
            self.give_up();
            return Ok(Err(ReadEnd::NoMemory));
        }
        if !self.buffer.is_empty() && self.arrival.is_none() {
            self.arrival = Some(Box::pin(sleep(self.resp.command_timeout)));
        }
        let mut limited = (&mut self.buffer).limit(self.read_size);
        let read = tokio::select! {
            biased;
            read = self.stream.read_buf(&mut limited) => read?,
            () = self.closing.begun() => 0,
            () = arrived_late(&mut self.arrival) => return Ok(Err(ReadEnd::TooSlow)),
        };
        if read == self.read_size {
            self.read_size = (2 * self.read_size).min(MAX_READ_BYTES);
        }
        Ok(Some(read).filter(|read| *read > 0).ok_or(ReadEnd::Closed))
    }

    /// Has the buffer take the next read; `false` if there is no memory for it.
    fn make_room(&mut self) -> bool {
        if self.buffer.is_empty() && self.buffer.capacity() > MAX_READ_BYTES {
            // A long command was processed: its buffer is freed.
            self.buffer = BytesMut::new();
        }
        if self.reserve() {
            return true;
        }
        // Under pressure, space that only saves reads is given up: short commands always fit.
        self.read_size = MIN_READ_BYTES;
        self.buffer = BytesMut::from(&self.buffer[..]);
        self.reserve()
    }

    /// Reserves the next read, first of the memory of all connections.
    fn reserve(&mut self) -> bool {
        let (length, capacity) = (self.buffer.len(), self.buffer.capacity());
        // Where a read does not fit, the buffer at least doubles.
        let needed = length + self.read_size;
        let next = if needed > capacity { needed.max(2 * capacity) } else { capacity };
        let counted = next.saturating_sub(UNCOUNTED_BYTES);
        let fits = self.reserved.as_mut().is_some_and(|reserved| reserved.resize(counted));
        if fits {
            self.buffer.reserve(self.read_size);
        }
        fits
    }

    /// Frees an unfinished command at once: while the connection closes, its memory would have others refused as well.
    fn give_up(&mut self) {
        self.buffer = BytesMut::new();
        self.reserved = None;
    }

    /// Tells the client why its unfinished command is not waited for.
    fn explain(&mut self, end: &ReadEnd) {
        match end {
            ReadEnd::Closed => {}
            ReadEnd::TooSlow => self.replies.error("ERR", &"Protocol error: the command took too long to arrive"),
            ReadEnd::NoMemory => self.replies.error("BUSY", &"too many unfinished commands are arriving; try again"),
        }
    }

    /// Closes the connection so that the last replies arrive.
    async fn close(mut self) -> io::Result<()> {
        self.stream.shutdown().await?;
        let rest = async {
            let mut lingered = 0;
            while lingered < MAX_LINGER_BYTES {
                self.buffer.clear();
                self.buffer.reserve(MIN_READ_BYTES);
                match self.stream.read_buf(&mut self.buffer).await {
                    Ok(0) | Err(_) => break,
                    Ok(read) => lingered += read,
                }
            }
        };
        // Errors do not matter any more.
        let _ = timeout(LINGER, rest).await;
        Ok(())
    }
}

impl Responder {
    async fn answer(
        &mut self,
        arguments: Arguments<'_>,
        resp: &Resp,
        batch: &mut ThrottleBatch<'_>,
        replies: &mut Replies,
    ) -> AfterReply {
        match command::parse(arguments) {
            Ok(ParsedCommand::Throttle(command)) => {
                match batch.throttle(&mut self.throttler, command.key, &command.throttle, command.units).await {
                    Ok(result) => handlers::reply_throttle(command.dialect, command.throttle.burst, &result, replies),
                    Err(error) => refuse(&CommandError::Uncountable(error, command.dialect), batch, replies),
                }
                AfterReply::Continue
            }
            Ok(ParsedCommand::Other(command)) => self.answer_other(Ok(command), resp, batch, replies),
            Err(error) => self.answer_other(Err(error), resp, batch, replies),
        }
    }

    /// Replies to a command that needs no decision.
    fn answer_other(
        &mut self,
        command: Result<Command<'_>, CommandError<'_>>,
        resp: &Resp,
        batch: &ThrottleBatch<'_>,
        replies: &mut Replies,
    ) -> AfterReply {
        match command {
            Ok(command) => self.peer.answer(&command, &resp.counts, replies),
            Err(CommandError::Unknown(arguments)) if is_http(arguments) => AfterReply::Close,
            Err(error) => {
                refuse(&error, batch, replies);
                AfterReply::Continue
            }
        }
    }

    /// Replies on a store that waits: throttles are submitted, and answered before any other command.
    async fn answer_batched(
        &mut self,
        arguments: Arguments<'_>,
        resp: &Resp,
        batch: &mut ThrottleBatch<'_>,
        replies: &mut Replies,
    ) -> AfterReply {
        let command = match command::parse(arguments) {
            Ok(ParsedCommand::Throttle(command)) => return self.submit(&command, batch, replies).await,
            Ok(ParsedCommand::Other(command)) => Ok(command),
            Err(error) => Err(error),
        };
        self.flush_pending(batch, replies).await;
        self.answer_other(command, resp, batch, replies)
    }

    /// Submits a throttle without waiting for its result: all throttles of one read wait for the store together.
    async fn submit(
        &mut self,
        command: &ThrottleCommand<'_>,
        batch: &mut ThrottleBatch<'_>,
        replies: &mut Replies,
    ) -> AfterReply {
        match batch.submit(&mut self.throttler, command.key, &command.throttle, command.units) {
            Ok(()) => self.pending.push((command.dialect, command.throttle.burst)),
            Err(error) => {
                self.flush_pending(batch, replies).await;
                refuse(&CommandError::Uncountable(error, command.dialect), batch, replies);
            }
        }
        if self.pending.len() >= MAX_PENDING_THROTTLES {
            self.flush_pending(batch, replies).await;
        }
        AfterReply::Continue
    }

    /// Replies to all submitted throttles.
    async fn flush_pending(&mut self, batch: &mut ThrottleBatch<'_>, replies: &mut Replies) {
        if !self.pending.is_empty() {
            let results = batch.results().await;
            for ((dialect, burst), result) in self.pending.drain(..).zip(results) {
                handlers::reply_throttle(dialect, burst, &result, replies);
            }
        }
    }
}

fn refuse(error: &CommandError<'_>, batch: &ThrottleBatch<'_>, replies: &mut Replies) {
    if error.is_throttle_error() {
        batch.count_refused();
    }
    replies.error(error.code(), error);
}

/// Completes when the unfinished command should have arrived.
async fn arrived_late(arrival: &mut Option<Pin<Box<Sleep>>>) {
    match arrival {
        Some(arrival) => arrival.as_mut().await,
        None => std::future::pending().await,
    }
}

/// Whether this is an HTTP request, which a browser may have been made to send: nothing that follows may be taken for
/// commands.
fn is_http(arguments: Arguments<'_>) -> bool {
    let name = arguments.get(0).unwrap_or_default();
    [&b"post"[..], b"host:"].iter().any(|word| name.eq_ignore_ascii_case(word))
}
