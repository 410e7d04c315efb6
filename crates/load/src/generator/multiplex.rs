//! What a generator does with connections of HTTP/2: sends on them, and lets them read and write.

use std::task::Poll;

use rustix::event::epoll::{self, EventData, EventFlags};

use super::Generator;
use super::channel::Channel;
use super::course::Course;
use super::exchange::{Exchange, parts_of};
use super::links::{LINK, Link};
use crate::client::{Fault, Http2Connection, ReplyError};

impl Generator {
    /// Sends a request on a shared connection, and opens one if there is none with room.
    pub(super) fn send_on_link(&mut self, course: &mut Course<'_>, exchange: Exchange) {
        // A request that is sent again has its place already, so that it may exceed the bounds.
        let link = self.links.choose(true).or_else(|| self.links.choose(false));
        let begun = link.ok_or(Fault::Unprocessed).and_then(|link| {
            self.open_link(link)?;
            let slot = self.free_slot();
            let parts = parts_of(&exchange.request, &self.key, self.shared.verify);
            let opened = self.links.links[link as usize].connection.as_mut();
            let begun = opened
                .ok_or(Fault::Unprocessed)
                .and_then(|connection| connection.begin(slot, &self.shared.target, &parts));
            match begun {
                Ok(stream) => Ok((link, slot, stream)),
                Err(fault) => {
                    self.free.push(slot);
                    Err(fault)
                }
            }
        });
        let (link, slot, stream) = match begun {
            Ok(begun) => begun,
            Err(fault) => return self.unsent(course, exchange, &fault),
        };
        self.slots[slot as usize].channel =
            Some(Channel::Stream { link, stream: Box::new(stream) });
        self.hold(slot, exchange);
        let place = &mut self.links.links[link as usize];
        place.streams += 1;
        let generation = place.generation;
        self.links.mark(link, generation);
        self.drive(course);
    }

    /// Opens the connection at a place, if it is not open.
    fn open_link(&mut self, link: u32) -> Result<(), Fault> {
        let at = link as usize;
        if at >= self.links.links.len() {
            self.links.links.resize_with(at + 1, Link::default);
        }
        let place = &mut self.links.links[at];
        if place.connection.is_some() {
            return Ok(());
        }
        let streams_max = self.links.streams_max.unwrap_or(1);
        let connection = Http2Connection::open(&self.shared.target, streams_max)?;
        let data = event_of(link, place.generation);
        let flags = EventFlags::IN | EventFlags::OUT;
        epoll::add(&self.epoll, connection.socket(), data, flags).map_err(Fault::Socket)?;
        *place = Link { generation: place.generation, watches_write: true, ..Link::default() };
        place.connection = Some(connection);
        Ok(())
    }

    /// Lets all connections that are marked read and write, until none has anything to do. Completed
    /// requests may mark others.
    pub(super) fn drive(&mut self, course: &mut Course<'_>) {
        if self.links.driving {
            return;
        }
        self.links.driving = true;
        while let Some(link) = self.links.marked.pop() {
            self.drive_link(course, link);
        }
        self.links.driving = false;
    }

    fn drive_link(&mut self, course: &mut Course<'_>, link: u32) {
        let at = link as usize;
        loop {
            let Some(connection) = &mut self.links.links[at].connection else { return };
            let ended = connection.poll();
            let ready = connection.take_ready();
            let idle = ready.is_empty();
            let over = match &ended {
                Poll::Ready(Err(fault)) => Some(fault),
                _ => None,
            };
            for slot in ready {
                self.poll_stream(course, link, slot, over);
            }
            if let Poll::Ready(ended) = ended {
                return self.end_link(course, link, ended);
            }
            let place = &mut self.links.links[at];
            let Some(connection) = &place.connection else { return };
            place.has_served |= connection.is_used();
            if idle && !connection.wants_poll() {
                break;
            }
        }
        if let Err(fault) = self.watch_link(link) {
            self.end_link(course, link, Err(fault));
        }
    }

    /// Lets a stream of a connection go on. `over`: what ended the connection, if anything did; it says
    /// more than the stream, which only saw the end.
    fn poll_stream(&mut self, course: &mut Course<'_>, link: u32, slot: u32, over: Option<&Fault>) {
        // A waker may be that of an earlier stream in the same slot; its poll does no harm.
        let place = self.slots.get_mut(slot as usize).and_then(|place| place.channel.as_mut());
        let Some(Channel::Stream { link: own, stream }) = place else { return };
        let Some(connection) = &mut self.links.links[link as usize].connection else { return };
        if *own != link {
            return;
        }
        match stream.poll(connection) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => self.complete(course, slot),
            Poll::Ready(Err(fault @ (Fault::Refused | Fault::Unprocessed))) => {
                self.broken(course, slot, &fault);
            }
            Poll::Ready(Err(fault)) => self.broken(course, slot, over.unwrap_or(&fault)),
        }
    }

    /// Closes a connection; requests that are left on it have failed.
    fn end_link(&mut self, course: &mut Course<'_>, link: u32, ended: Result<(), Fault>) {
        let place = &mut self.links.links[link as usize];
        place.connection = None;
        place.generation = place.generation.wrapping_add(1);
        let fault = ended.err().unwrap_or(Fault::Reply(ReplyError::Closed("with requests on it")));
        for slot in 0..self.slots.len() as u32 {
            let channel = self.slots[slot as usize].channel.as_ref();
            let own = channel.is_some_and(
                |channel| matches!(channel, Channel::Stream { link: own, .. } if *own == link),
            );
            if own {
                self.broken(course, slot, &fault);
            }
        }
    }

    /// Registers for write events if, and only if, unsent bytes are left.
    fn watch_link(&mut self, link: u32) -> Result<(), Fault> {
        let place = &mut self.links.links[link as usize];
        let Some(connection) = &place.connection else { return Ok(()) };
        let wants = connection.wants_write();
        if wants != place.watches_write {
            let flags = if wants { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            let data = event_of(link, place.generation);
            epoll::modify(&self.epoll, connection.socket(), data, flags).map_err(Fault::Socket)?;
            place.watches_write = wants;
        }
        Ok(())
    }
}

fn event_of(link: u32, generation: u32) -> EventData {
    EventData::new_u64(u64::from(generation) << 32 | u64::from(LINK | link))
}
