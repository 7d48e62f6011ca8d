//! One connection: what has been read is decided in order, and all of it is answered by one write.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tollgate::Throttler;

use super::Resp;
use super::answers::{self, Peer, Then};
use super::command::{self, Asked, Command, Fault, Form, Order};
use super::frame::{Arguments, Parser};
use super::reply::Replies;
use crate::counters::Counters;
use crate::gate::{Batch, MOST_TOGETHER};
use crate::net::{Closing, Stream};

/// A client and what it has said that is not answered yet.
#[derive(Debug)]
pub(super) struct Connection {
    resp: Arc<Resp>,
    stream: Stream,
    closing: Closing,
    inbox: BytesMut,
    /// How much to make room for: more when reads fill it.
    room: usize,
    parser: Parser,
    replies: Replies,
    desk: Desk,
}

/// What answers need.
#[derive(Debug)]
struct Desk {
    peer: Peer,
    throttler: Throttler<Counters>,
    /// Of the throttles that were asked for and are not answered: whose answer is expected, and the most at once.
    asked: Vec<(Form, u64)>,
}

/// What is to be done when the answers have been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Read,
    /// There are more commands than answers should be kept for.
    Answer,
    Close,
}

/// The room for a read, at first and at most.
const LEAST_ROOM: usize = 4 * 1024;
const MOST_ROOM: usize = 64 * 1024;
/// When so many bytes of answers wait, they are sent before more is decided: memory stays bounded, whatever is asked.
const MOST_WAITING: usize = 64 * 1024;
/// After so many bytes it is another connection's turn.
const LONGEST_TURN: usize = 64 * 1024;
/// How long a client may take to read the last answers once the server is about to stop.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long a connection that is closed is still read from, and how much: what is not read when it is closed makes the system
/// take back the last answers.
const LINGER: Duration = Duration::from_millis(250);
const MOST_LINGERED: usize = 1024 * 1024;

impl Connection {
    pub(super) fn new(resp: Arc<Resp>, stream: Stream, closing: Closing, id: u64) -> Connection {
        let throttler = resp.gate.throttler(Resp::SPACE);
        Connection {
            resp,
            stream,
            closing,
            inbox: BytesMut::new(),
            room: LEAST_ROOM,
            parser: Parser::default(),
            replies: Replies::default(),
            desk: Desk { peer: Peer::new(id), throttler, asked: Vec::new() },
        }
    }

    /// Answers until the client goes, or is sent away, or the server is about to stop.
    pub(super) async fn serve(mut self) -> io::Result<()> {
        let mut turn = 0;
        loop {
            let next = self.answer().await;
            self.send().await?;
            match next {
                Next::Close => break,
                Next::Answer => tokio::task::yield_now().await,
                Next::Read => match self.read().await? {
                    Some(read) => turn += read,
                    None => break,
                },
            }
            if turn >= LONGEST_TURN {
                turn = 0;
                tokio::task::yield_now().await;
            }
        }
        self.close().await
    }

    /// Decides what has been read, up to where it is not whole.
    async fn answer(&mut self) -> Next {
        let Connection { resp, inbox, parser, replies, desk, .. } = self;
        let mut batch = resp.gate.batch();
        let waits = batch.waits();
        let (mut read, mut commands) = (0, 0);
        let next = loop {
            let rest = &inbox[read..];
            let length = match parser.next(rest) {
                Ok(Some(length)) => length,
                Ok(None) => break Next::Read,
                Err(malformed) => {
                    desk.catch_up(&mut batch, replies).await;
                    replies.error("ERR", &malformed);
                    break Next::Close;
                }
            };
            read += length;
            let arguments = parser.arguments(rest);
            if arguments.len() == 0 {
                continue;
            }
            commands += 1;
            let then = match waits {
                false => desk.answer(arguments, resp, &mut batch, replies).await,
                // Boxed, so that nothing of a command need be kept where no store makes wait.
                true => Box::pin(desk.answer_in_turn(arguments, resp, &mut batch, replies)).await,
            };
            if then == Then::Close {
                break Next::Close;
            }
            if replies.bytes().len() >= MOST_WAITING {
                break Next::Answer;
            }
        };
        desk.catch_up(&mut batch, replies).await;
        drop(batch);
        inbox.advance(read);
        resp.counts.answered(commands);
        next
    }

    /// Sends all answers. While they are not taken nothing more is read, so a client that does not read holds up nobody else.
    async fn send(&mut self) -> io::Result<()> {
        let Connection { stream, closing, replies, .. } = self;
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
                () = closing.begun() => timeout(LAST_WORDS, sending).await??,
            }
        }
        replies.clear();
        Ok(())
    }

    /// Reads what there is, or waits for it; `None` if nothing more will come.
    async fn read(&mut self) -> io::Result<Option<usize>> {
        if self.closing.has_begun() {
            return Ok(None);
        }
        if self.inbox.is_empty() && self.inbox.capacity() > MOST_ROOM {
            // A long command has gone, and its room with it.
            self.inbox = BytesMut::new();
        }
        self.inbox.reserve(self.room);
        let mut room = (&mut self.inbox).limit(self.room);
        let read = tokio::select! {
            biased;
            read = self.stream.read_buf(&mut room) => read?,
            () = self.closing.begun() => 0,
        };
        if read == self.room {
            self.room = (2 * self.room).min(MOST_ROOM);
        }
        Ok(Some(read).filter(|read| *read > 0))
    }

    /// Ends the connection so that the last answers arrive.
    async fn close(mut self) -> io::Result<()> {
        self.stream.shutdown().await?;
        let rest = async {
            let mut lingered = 0;
            while lingered < MOST_LINGERED {
                self.inbox.clear();
                self.inbox.reserve(LEAST_ROOM);
                match self.stream.read_buf(&mut self.inbox).await {
                    Ok(0) | Err(_) => break,
                    Ok(read) => lingered += read,
                }
            }
        };
        // However it ends, it has ended.
        let _ = timeout(LINGER, rest).await;
        Ok(())
    }
}

impl Desk {
    async fn answer(
        &mut self,
        arguments: Arguments<'_>,
        resp: &Resp,
        batch: &mut Batch<'_>,
        replies: &mut Replies,
    ) -> Then {
        match command::read(arguments) {
            Ok(Order::Throttle(asked)) => {
                match batch.throttle(&mut self.throttler, asked.key, &asked.throttle, asked.units).await {
                    Ok(throttled) => answers::throttled(asked.form, asked.throttle.burst, &throttled, replies),
                    Err(error) => refuse(&Fault::Uncountable(error, asked.form), batch, replies),
                }
                Then::GoOn
            }
            Ok(Order::Other(command)) => self.answer_other(Ok(command), resp, batch, replies),
            Err(fault) => self.answer_other(Err(fault), resp, batch, replies),
        }
    }

    /// Answers what needs no decision.
    fn answer_other(
        &mut self,
        command: Result<Command<'_>, Fault<'_>>,
        resp: &Resp,
        batch: &Batch<'_>,
        replies: &mut Replies,
    ) -> Then {
        match command {
            Ok(command) => self.peer.answer(&command, &resp.counts, replies),
            Err(Fault::Unknown(arguments)) if is_http(arguments) => Then::Close,
            Err(fault) => {
                refuse(&fault, batch, replies);
                Then::GoOn
            }
        }
    }

    /// Answers on a store that makes wait: throttles are asked for, and answered before anything else is.
    async fn answer_in_turn(
        &mut self,
        arguments: Arguments<'_>,
        resp: &Resp,
        batch: &mut Batch<'_>,
        replies: &mut Replies,
    ) -> Then {
        let command = match command::read(arguments) {
            Ok(Order::Throttle(asked)) => return self.ask(&asked, batch, replies).await,
            Ok(Order::Other(command)) => Ok(command),
            Err(fault) => Err(fault),
        };
        self.catch_up(batch, replies).await;
        self.answer_other(command, resp, batch, replies)
    }

    /// Asks for a throttle, and goes on before it is answered: what one read brought is one wait for the store, not one after
    /// the other.
    async fn ask(&mut self, asked: &Asked<'_>, batch: &mut Batch<'_>, replies: &mut Replies) -> Then {
        match batch.ask(&mut self.throttler, asked.key, &asked.throttle, asked.units) {
            Ok(()) => self.asked.push((asked.form, asked.throttle.burst)),
            Err(error) => {
                self.catch_up(batch, replies).await;
                refuse(&Fault::Uncountable(error, asked.form), batch, replies);
            }
        }
        if self.asked.len() >= MOST_TOGETHER {
            self.catch_up(batch, replies).await;
        }
        Then::GoOn
    }

    /// Answers all that was asked for.
    async fn catch_up(&mut self, batch: &mut Batch<'_>, replies: &mut Replies) {
        if !self.asked.is_empty() {
            let answered = batch.answers().await;
            for ((form, burst), throttled) in self.asked.drain(..).zip(answered) {
                answers::throttled(form, burst, &throttled, replies);
            }
        }
    }
}

fn refuse(fault: &Fault<'_>, batch: &Batch<'_>, replies: &mut Replies) {
    if fault.is_of_a_throttle() {
        batch.refused_request();
    }
    replies.error(fault.code(), fault);
}

/// Whether a browser was made to send this: then nothing that follows may be taken for commands.
fn is_http(arguments: Arguments<'_>) -> bool {
    let name = arguments.get(0).unwrap_or_default();
    [&b"post"[..], b"host:"].iter().any(|word| name.eq_ignore_ascii_case(word))
}
