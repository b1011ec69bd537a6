//! Requests that are under way: looked at, waited for, cancelled.

use super::engine::Engine;
use super::{Done, Request, Status, World};

impl World {
    /// Moves everything on that can move, without waiting.
    pub fn progress(&self) {
        // After the end there is nothing to move.
        let _ = self.shared.with(|engine| engine.look());
    }

    /// Whether a request is done.
    pub fn done(&self, request: Request) -> bool {
        request == Request::SENT || self.shared.with(|engine| engine.core.is_done(request)).unwrap_or(true)
    }

    /// The status of a request that is done; the request stays.
    pub fn look(&self, request: Request) -> Option<Status> {
        self.shared.with(|engine| engine.core.status(request)).ok().flatten()
    }

    /// The end of a request that is done; the request is gone.
    pub fn take(&self, request: Request) -> Option<Done> {
        self.shared.with(|engine| engine.core.take(request)).ok().flatten()
    }

    /// Takes the ends of requests that are done, in one turn: each gets its place in the list, its end and what was noted of it,
    /// none for a place without a request.
    pub fn take_all(&self, requests: &[Option<Request>], mut each: impl FnMut(usize, Option<(Done, u32)>)) {
        let gone = || (Done { status: Status::EMPTY, error: None }, 0);
        let taken = self.shared.with(|engine| {
            for (at, request) in requests.iter().enumerate() {
                let end = |request| engine.core.end(request).flatten().unwrap_or_else(gone);
                each(at, request.map(end));
            }
        });
        // After the end all requests are as good as done.
        if taken.is_err() {
            requests.iter().enumerate().for_each(|(at, request)| each(at, request.map(|_| gone())));
        }
    }

    /// Waits for the end of a request; the request is gone.
    pub fn wait(&self, request: Request) -> Done {
        if request == Request::SENT {
            return Done { status: Status::EMPTY, error: None };
        }
        let done = self.shared.wait(|engine| {
            let gone = || Done { status: Status::EMPTY, error: None };
            if !engine.core.is_done(request) {
                return None;
            }
            Some(engine.core.take(request).unwrap_or_else(gone))
        });
        done.unwrap_or_else(|error| Done { status: Status::EMPTY, error: Some(error) })
    }

    /// Waits for the end of a request, which is gone then, and what was noted of it. None: there is no such request.
    #[inline]
    pub fn end(&self, request: Request) -> Option<(Done, u32)> {
        let ended = self.shared.wait(|engine| engine.core.end(request));
        ended.unwrap_or_else(|error| Some((Done { status: Status::EMPTY, error: Some(error) }, 0)))
    }

    /// Notes something of a request.
    pub fn set_label(&self, request: Request, label: u32) {
        let _ = self.shared.with(|engine| engine.core.set_label(request, label));
    }

    /// What was noted of a request; 0 at first. None: there is no such request.
    pub fn label(&self, request: Request) -> Option<u32> {
        self.shared.with(|engine| engine.core.label(request)).ok().flatten()
    }

    /// The first place of a list with a request that there is not.
    pub fn first_unknown(&self, requests: &[Option<Request>]) -> Option<usize> {
        let known = |request: &Request, engine: &Engine| {
            *request == Request::SENT || engine.core.label(*request).is_some()
        };
        let unknown = self.shared.with(|engine| {
            requests.iter().position(|request| request.is_some_and(|request| !known(&request, engine)))
        });
        unknown.ok().flatten()
    }

    /// Waits until one of the requests is done, and says which. None: there is none in the list.
    pub fn wait_any(&self, requests: &[Option<Request>]) -> Option<usize> {
        if requests.iter().all(Option::is_none) {
            return None;
        }
        let first = self.shared.wait(|engine| {
            requests.iter().position(|request| request.is_some_and(|request| engine.core.is_done(request)))
        });
        first.ok()
    }

    /// Waits until all requests are done.
    pub fn wait_all(&self, requests: &[Option<Request>]) {
        // Those before it were found done and stay so.
        let mut next = 0;
        let _ = self.shared.wait(|engine| {
            while let Some(request) = requests.get(next) {
                if request.is_some_and(|request| !engine.core.is_done(request)) {
                    return None;
                }
                next += 1;
            }
            Some(())
        });
    }

    /// Cancels a request, if it has not met its message.
    pub fn cancel(&self, request: Request) {
        let _ = self.shared.with(|engine| engine.core.cancel(request));
    }

    /// The request goes on, and its end is not asked for.
    pub fn free(&self, request: Request) {
        let _ = self.shared.with(|engine| engine.core.detach(request));
    }
}
