//! Requests that are under way: looked at, waited for, cancelled.

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

    /// Takes the ends of requests that are done, in one turn: each gets its place in the list and its end, none for a place
    /// without a request.
    pub fn take_all(&self, requests: &[Option<Request>], mut each: impl FnMut(usize, Option<Done>)) {
        let gone = || Done { status: Status::EMPTY, error: None };
        let taken = self.shared.with(|engine| {
            for (at, request) in requests.iter().enumerate() {
                each(at, request.map(|request| engine.core.take(request).unwrap_or_else(gone)));
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
