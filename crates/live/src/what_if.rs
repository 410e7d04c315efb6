//! `/what-if`: what would happen under another load, with other servers, memory or devices, by the model that was fitted last.
//!
//! One thread of low priority answers these questions, so that requests for objects have the processor first, and at most
//! [`WAITING_MAX`] questions wait for it; a further one is refused. One answer costs some tens of milliseconds by a live model, which has
//! few replicates, and a question that brings its own model is bounded by [`BODY_BYTES_MAX`], [`REPLICATES_MAX`] and [`CLASSES_MAX`].
//! The thread starts with the first question: most processes are never asked one.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};

use http::StatusCode;
use http::header::{HeaderValue, RETRY_AFTER};
use model::Model;
use model::live::FittedModel;
use model::what_if::{Answer, ChangedModel, WhatIf};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use wire::problem::Problem;

/// Questions that wait for the thread.
const WAITING_MAX: usize = 4;
/// The largest question. A model file with a hundred replicates has some 50 KB.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Bounds of a model that comes with a question: its cost grows with both.
const REPLICATES_MAX: usize = 500;
const CLASSES_MAX: usize = 8;

/// The body of `POST /what-if`. What is absent is as it is now.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhatIfRequest {
    /// Requests/s on all servers.
    rate: Option<f64>,
    /// The time of the objective, seconds.
    objective_s: Option<f64>,
    /// The share of the objective.
    share: Option<f64>,
    /// What is different.
    #[serde(default)]
    changes: WhatIf,
    /// The text of a model file, in place of the server's own model.
    model: Option<String>,
}

/// The reply of `GET /what-if`: what can be asked.
#[derive(Clone, Debug, Serialize)]
pub struct Knobs {
    /// When the model was fitted, microseconds since 1970-01-01 UTC.
    at_unix_us: Option<u64>,
    /// The load to which it was fitted, requests/s.
    rate: f64,
    /// The time of the objective, seconds.
    objective_s: f64,
    /// The share of the objective.
    share: f64,
    /// The devices of a server.
    classes: Vec<DevicesOfClass>,
    /// Kinds of requests, for other mixes.
    kinds: Vec<Kind>,
    /// Laboratory conditions, to be shown with every answer.
    laboratory: Option<String>,
}

/// The devices of a class.
#[derive(Clone, Debug, Serialize)]
struct DevicesOfClass {
    name: String,
    count: u32,
    share: f64,
}

/// A kind of requests.
#[derive(Clone, Debug, Serialize)]
struct Kind {
    title: String,
    operation: &'static str,
    bytes: [u64; 2],
    share: f64,
}

/// The objective of the process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// Its time, seconds.
    pub within_s: f64,
    /// Its share.
    pub share: f64,
}

/// A question on its way to the thread.
struct PendingQuestion {
    request: WhatIfRequest,
    fitted: Option<FittedModel>,
    objective: Objective,
    reply: oneshot::Sender<Result<WhatIfReply, Problem>>,
}

/// The reply of `POST /what-if`.
#[derive(Debug, Serialize)]
struct WhatIfReply {
    /// What can be asked of the model.
    knobs: Knobs,
    /// The answer.
    answer: Answer,
}

/// The thread that answers, once it was needed.
#[derive(Default)]
pub struct WhatIfs {
    questions: OnceLock<SyncSender<PendingQuestion>>,
}

impl WhatIfs {
    /// Answers a question, as JSON.
    ///
    /// # Errors
    ///
    /// 400 for a question that cannot be answered, 409 before a model is fitted, 503 while too many are asked.
    pub async fn answer(
        &self,
        request: WhatIfRequest,
        fitted: Option<FittedModel>,
        objective: Objective,
    ) -> Result<Vec<u8>, Problem> {
        let (reply, wait) = oneshot::channel();
        let question = PendingQuestion { request, fitted, objective, reply };
        let sender = self.questions.get_or_init(start);
        if let Err(TrySendError::Full(_)) = sender.try_send(question) {
            let what = "other what-if questions are being answered; ask again in a second";
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, what)
                .with(RETRY_AFTER, HeaderValue::from_static("1")));
        }
        let ended = |_| {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "what-if questions are not answered now")
        };
        let replied = wait.await.map_err(ended)??;
        Ok(serde_json::to_vec(&replied).unwrap_or_default())
    }
}

/// Starts the thread. Where the system has none, the first question finds the channel closed.
fn start() -> SyncSender<PendingQuestion> {
    let (sender, receiver) = sync_channel(WAITING_MAX);
    let thread = std::thread::Builder::new().name("what-if".to_owned());
    if let Err(error) = thread.spawn(move || run(&receiver)) {
        tracing::warn!("cannot start the thread of what-if questions: {error}");
    }
    sender
}

/// The thread: until the process's loop is gone.
fn run(questions: &Receiver<PendingQuestion>) {
    // Requests have priority. If lowering the priority fails, they share the processor.
    let _ = rustix::process::nice(10);
    let mut answerer = Answerer::default();
    while let Ok(PendingQuestion { request, fitted, objective, reply }) = questions.recv() {
        // The client may have left while the question waited.
        if !reply.is_closed() {
            let _ = reply.send(answerer.reply_to(request, fitted, objective));
        }
    }
}

/// Answers one question after the other. The next one is mostly of the same model, and often another load alone: a slider that
/// moves. What does not depend on the load is most of an answer's work, so that it is kept from one to the next.
#[derive(Default)]
struct Answerer {
    /// The model that came with a question, and its text.
    opened: Option<(String, FittedModel)>,
    /// The changes that were asked for last.
    changed: Option<Changed>,
}

/// A model with changes, for an objective.
struct Changed {
    fitted: Arc<Model>,
    changes: WhatIf,
    objective: Objective,
    model: ChangedModel,
}

impl Answerer {
    fn reply_to(
        &mut self,
        request: WhatIfRequest,
        fitted: Option<FittedModel>,
        objective: Objective,
    ) -> Result<WhatIfReply, Problem> {
        let fitted = match request.model {
            Some(text) => self.open(text)?,
            None => fitted.ok_or_else(nothing_fitted)?,
        };
        let asked = Objective {
            within_s: request.objective_s.unwrap_or(objective.within_s),
            share: request.share.unwrap_or(objective.share),
        };
        let changed = self.changed(&fitted.model, request.changes, asked)?;
        let answer = changed.answer(request.rate.unwrap_or(fitted.rate));
        let answer = answer.map_err(|error| wrong(&error))?;
        Ok(WhatIfReply { knobs: knobs(&fitted, objective), answer })
    }

    fn open(&mut self, text: String) -> Result<FittedModel, Problem> {
        if let Some((_, fitted)) = self.opened.as_ref().filter(|(opened, _)| *opened == text) {
            return Ok(fitted.clone());
        }
        let fitted = open_model(&text).map_err(|why| wrong(&why))?;
        self.opened = Some((text, fitted.clone()));
        Ok(fitted)
    }

    fn changed(
        &mut self,
        fitted: &Arc<Model>,
        changes: WhatIf,
        objective: Objective,
    ) -> Result<&ChangedModel, Problem> {
        let is_same = |last: &Changed| {
            Arc::ptr_eq(&last.fitted, fitted)
                && last.changes == changes
                && last.objective == objective
        };
        let changed = match self.changed.take().filter(is_same) {
            Some(last) => last,
            None => {
                let Objective { within_s, share } = objective;
                let model = ChangedModel::new(fitted, &changes, within_s, share);
                let model = model.map_err(|error| wrong(&error))?;
                Changed { fitted: fitted.clone(), changes, objective, model }
            }
        };
        Ok(&self.changed.insert(changed).model)
    }
}

/// The refusal of a question.
fn wrong(error: &dyn std::fmt::Display) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, error.to_string().trim_end())
}

/// A model from the text of its file, at the largest load to which it was fitted.
fn open_model(text: &str) -> Result<FittedModel, String> {
    let model = Model::from_toml(text).map_err(|error| error.to_string())?;
    let (replicates, classes) = (model.replicates.rows.len(), model.classes.len());
    if replicates > REPLICATES_MAX || classes > CLASSES_MAX {
        return Err(format!(
            "the model has {replicates} replicates and {classes} classes of devices; this server answers what-if questions of \
             models with at most {REPLICATES_MAX} and {CLASSES_MAX}: use `concertina predict`"
        ));
    }
    let rate = model.requests.rate_high;
    Ok(FittedModel { model: Arc::new(model), at_unix_us: 0, rate })
}

/// The refusal before the first fit.
pub fn nothing_fitted() -> Problem {
    let what = "no model has been fitted yet: it takes some 200 requests within a minute, some of them answered by a device \
                (GET /model says what is missing in `why_not_fitted`)";
    Problem::new(StatusCode::CONFLICT, what)
}

/// What can be asked of a model.
pub fn knobs(fitted: &FittedModel, objective: Objective) -> Knobs {
    let model = &fitted.model;
    let mut classes: Vec<DevicesOfClass> = Vec::new();
    for devices in &model.devices {
        let (count, share) = (devices.count, f64::from(devices.count) * devices.share);
        match classes.iter_mut().find(|class| class.name == devices.class) {
            Some(class) => {
                class.count += count;
                class.share += share;
            }
            None => classes.push(DevicesOfClass { name: devices.class.clone(), count, share }),
        }
    }
    let kind = |kind: &model::RequestKind| Kind {
        title: kind.title(),
        operation: kind.operation.as_str(),
        bytes: kind.bytes,
        share: kind.share,
    };
    Knobs {
        at_unix_us: (fitted.at_unix_us > 0).then_some(fitted.at_unix_us),
        rate: fitted.rate,
        objective_s: objective.within_s,
        share: objective.share,
        classes,
        kinds: model.kinds.iter().map(kind).collect(),
        laboratory: model.about.laboratory.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: &str = include_str!("../../../fuzz/model.toml");

    /// What is kept from one question to the next is that of the same model, changes and objective.
    #[test]
    fn an_answer_does_not_depend_on_the_question_before() {
        let fitted = open_model(MODEL).unwrap();
        let other = MODEL.replace("rate_high = 40.92", "rate_high = 50.0");
        assert_ne!(other, MODEL);
        let objective = Objective { within_s: 0.05, share: 0.95 };
        let mut answerer = Answerer::default();
        let high = fitted.rate;
        for (rate, speed, within_s, model) in [
            (0.5 * high, 1.0, 0.05, None),
            (0.9 * high, 1.0, 0.05, None),
            (0.9 * high, 2.0, 0.05, None),
            (0.9 * high, 2.0, 0.02, None),
            (0.8 * high, 2.0, 0.02, Some(MODEL)),
            (0.7 * high, 2.0, 0.02, Some(MODEL)),
            (0.7 * high, 2.0, 0.02, Some(other.as_str())),
            (0.7 * high, 2.0, 0.02, None),
            (1e9, 2.0, 0.02, None),
        ] {
            let request = || WhatIfRequest {
                rate: Some(rate),
                objective_s: Some(within_s),
                share: None,
                changes: WhatIf { speed, ..WhatIf::default() },
                model: model.map(str::to_owned),
            };
            let ask = |answerer: &mut Answerer| {
                let reply = answerer.reply_to(request(), Some(fitted.clone()), objective);
                serde_json::to_value(reply.ok()).unwrap()
            };
            let kept = ask(&mut answerer);
            assert!(!kept.is_null(), "{rate} {speed}");
            assert_eq!(kept, ask(&mut Answerer::default()), "{rate} {speed}");
        }
    }
}
