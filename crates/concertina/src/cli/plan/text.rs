//! Formats a plan as text.

use model::Model;
use model::plan::{
    Break, Cause, Choices, Configuration, Forecast, LimitRule, Memory, Plan, Planned, Reach,
};

use report::grid::{Grid, printable};
use report::objective::{digits, time};
use report::table::{
    MARK, MARK_TEXT, has_intervals, mark, percent, tenths, trust_text, warnings_text, with_interval,
};
use report::{Objective, compare};

/// The classes of devices for which the choices give a number of devices in a server.
fn chosen_classes(choices: &Choices) -> impl Iterator<Item = &str> {
    choices.devices.iter().map(|d| d.class.as_str())
}

/// A plan with the context that its text needs.
pub(super) struct PlanReport<'a> {
    pub plan: &'a Plan,
    pub objective: Objective,
    pub choices: &'a Choices,
    /// The currency of the prices.
    pub prices: String,
}

impl PlanReport<'_> {
    /// Formats the whole plan.
    pub fn text(&self, model: &Model, notes: &[String]) -> anyhow::Result<String> {
        let mut out = String::new();
        if let Some(note) = &model.about.laboratory {
            out += &format!("EMULATED: {}\n\n", printable(note));
        }
        out += &self.question_text();
        for note in notes {
            out += &format!("{}\n", printable(note));
        }
        out.push('\n');
        let mut found = String::new();
        if self.plan.ranked.is_empty() {
            found += &self.none();
        } else {
            found += &self.grid(&self.plan.ranked).text();
            found += &self.breaks(&self.plan.ranked);
        }
        if let Some(now) = &self.plan.now {
            let load = digits(self.plan.question.rate, 6);
            found += &format!("\nCheapest for the current load, {load} requests/s:\n");
            found += &self.grid(std::slice::from_ref(now)).text();
            found += &self.breaks(std::slice::from_ref(now));
        }
        found += &self.purchases();
        out += &format!("{found}\n{}", self.marks_text(&found));
        out += &trust_text(&model.trust()?);
        out += &warnings_text(&compare::warnings_of(model));
        Ok(out)
    }

    pub(super) fn price(&self, cost: f64) -> String {
        format!("{} {}", digits(cost, 6), printable(&self.prices)).trim_end().to_owned()
    }

    fn question_text(&self) -> String {
        let question = &self.plan.question;
        let mut out = format!("{} at {} requests/s", self.objective, digits(question.rate, 6));
        if let Some(growth) = question.growth {
            let end = question.rate * (1.0 + growth.per_month).powf(growth.months.into());
            let (verb, counts) = match growth.per_month < 0.0 {
                true => ("falling", ", of which the first counts"),
                false => ("growing", ""),
            };
            out += &format!(
                ", {verb} {} % a month to {} in {} months{counts}",
                digits(growth.per_month.abs() * 100.0, 3),
                digits(end, 6),
                growth.months
            );
        }
        if question.with_one_lost {
            out += ", also with one server lost";
        }
        match question.limit {
            LimitRule::None => {}
            LimitRule::Ours => out += ", within the confidence limit",
            LimitRule::Published => out += ", within the Spotify model's confidence limit",
        }
        let counts = [self.plan.configurations, self.plan.evaluated].map(|n| digits(n as f64, 9));
        out + &format!(".\n{} configurations, {} evaluated.\n", counts[0], counts[1])
    }

    fn grid(&self, all: &[Planned]) -> Grid {
        let shares = all.iter().map(|planned| &planned.forecast.within);
        let interval = if has_intervals(shares) { " [95 %]" } else { "" };
        let within = format!("≤ {} %{interval}", time(self.objective.within_s));
        let mut head = ["cost", "servers", "memory"].map(String::from).to_vec();
        head.extend(chosen_classes(self.choices).map(String::from));
        head.extend(["replicas", &within, "Spotify", "median", "p99"].map(String::from));
        head.extend(["memory %", "busy %", "headroom", "one lost %", ""].map(String::from));
        let mut grid = Grid { head, align: "", rows: Vec::new() };
        for planned in all {
            grid.row(self.row(planned));
        }
        grid
    }

    fn row(&self, planned: &Planned) -> Vec<String> {
        let (c, f) = (&planned.configuration, &planned.forecast);
        let mut cells = vec![self.price(c.cost), c.servers.to_string(), self.memory(c)];
        cells.extend(c.devices.iter().map(|d| d.count.to_string()));
        cells.push(c.replicas.to_string());
        cells.push(with_interval(&f.within, percent));
        cells.push(f.published.map_or("unstable".to_owned(), percent));
        let at = |share: f64| {
            let found = f.quantiles.iter().find(|q| q.share == share);
            found.map_or("–".to_owned(), |q| time(q.time_s))
        };
        cells.extend([
            at(0.5),
            at(0.99),
            tenths(f.hit_ratio.value),
            tenths(f.utilisation_max.value),
        ]);
        cells.push(format!("× {}", digits(planned.headroom, 3)));
        let lost = match &planned.one_lost.forecast {
            Some(lost) if lost.is_unknown => "not known".to_owned(),
            Some(lost) => {
                let held = if planned.one_lost.holds { "" } else { " missed" };
                let of = self.marks(lost, planned.like_fitted);
                format!("{}{held} {of}", percent(lost.within.value)).trim_end().to_owned()
            }
            None => "not served".to_owned(),
        };
        cells.extend([lost, self.marks(f, planned.like_fitted)]);
        cells
    }

    /// The memory of a server; that of the fitted server may be unknown.
    pub(super) fn memory(&self, configuration: &Configuration) -> String {
        match self.choices.memory == Memory::default() {
            true => "as fitted".to_owned(),
            false => digits(configuration.memory, 6),
        }
    }

    fn marks(&self, forecast: &Forecast, like_fitted: bool) -> String {
        let unlike = if like_fitted { "" } else { "~" };
        format!("{}{unlike}", mark(forecast.beyond_trust))
    }

    /// The legend of the marks that occur in the text above.
    fn marks_text(&self, above: &str) -> String {
        let mut out = String::new();
        if above.contains(MARK) {
            out += MARK_TEXT;
        }
        let found = self.plan.ranked.iter().chain(&self.plan.now);
        let found = found.map(|planned| (&planned.configuration, Some(&planned.forecast)));
        let nearest =
            self.plan.nearest.iter().map(|near| (&near.configuration, near.forecast.as_ref()));
        let mut long: Vec<String> = found
            .chain(nearest)
            .filter(|(_, forecast)| forecast.is_some_and(|f| f.beyond_limit))
            .map(|(configuration, _)| format!("{} servers", configuration.servers))
            .collect();
        long.dedup();
        if !long.is_empty() {
            let long = long.join(", ");
            out += &format!("Past the confidence limit, where queues are long: {long}.\n");
        }
        if above.contains('~') {
            out += "~ not the fitted server: derived from it by the laws of memory and devices.\n";
        }
        out
    }

    /// The limit that each configuration reaches first.
    fn breaks(&self, all: &[Planned]) -> String {
        let mut out = "\nWhat breaks first as the load grows:\n".to_owned();
        for planned in all {
            let cost = self.price(planned.configuration.cost);
            let month = match planned.ends_in_month {
                Some(month) => format!("; in month {month}"),
                None => String::new(),
            };
            let what = self.limit_text(&planned.breaks_first);
            out +=
                &format!("  {cost}, {} servers: {what}{month}.\n", planned.configuration.servers);
        }
        out
    }

    fn limit_text(&self, first: &Break) -> String {
        if !first.rate.is_finite() {
            return "nothing: memory answers everything".to_owned();
        }
        let marks = mark(first.beyond_trust);
        let rate = format!("{} requests/s {marks}", digits(first.rate, 4));
        let rate = rate.trim_end();
        let why = match first.cause {
            Cause::Unknown => {
                return format!(
                    "nothing is known past {rate}: no hypothesis fits, and no larger load of a server was measured"
                );
            }
            Cause::Saturation => {
                return format!("{} saturates at {rate}", printable(&first.class));
            }
            Cause::Objective => format!("{} is missed", self.objective),
            Cause::Limit => "the confidence limit is reached".to_owned(),
            Cause::OneLost => format!("{} is missed with one server lost", self.objective),
        };
        format!(
            "{why} past {rate}, {} {} % busy (it saturates at {})",
            printable(&first.class),
            tenths(first.utilisation),
            digits(first.saturation, 4)
        )
    }

    /// The message if no configuration meets the objective: the reason, and the largest load that
    /// one meets it at.
    fn none(&self) -> String {
        let Some(Reach { configuration: c, forecast, breaks_first, like_fitted, is_unknown }) =
            &self.plan.nearest
        else {
            return "NONE of the choices can be built: replicas need servers, and space on devices; reads \
            need devices.\n"
                .to_owned();
        };
        let mut what = vec![format!("{} servers", c.servers), format!("memory {}", self.memory(c))];
        what.extend(c.devices.iter().map(|d| format!("{} {}", d.count, printable(&d.class))));
        what.push(format!("replicas {}", c.replicas));
        let reached = match forecast {
            _ if *is_unknown => "has servers of which nothing is known at that load".to_owned(),
            Some(f) => {
                let [value, low, high] = [f.within.value, f.within.low, f.within.high].map(percent);
                let marks = self.marks(f, *like_fitted);
                let interval = match f.within.low < f.within.high {
                    true => format!(" [{low}, {high}]"),
                    false => String::new(),
                };
                format!("answers {value} %{interval} in time {marks}").trim_end().to_owned()
            }
            None => "cannot serve that load: its queues grow without bound".to_owned(),
        };
        let most = match breaks_first.rate > 0.0 {
            true => format!(
                "It meets all requirements up to {} requests/s",
                digits(breaks_first.rate, 4)
            ),
            false => "It meets the requirements at no load".to_owned(),
        };
        format!(
            "NONE of the choices meets the requirements. The nearest ({}; {}) {reached}.\n{most}: {}.\n",
            what.join(", "),
            self.price(c.cost),
            self.limit_text(breaks_first)
        )
    }

    fn purchases(&self) -> String {
        if self.plan.purchases.is_empty() {
            return "\nNothing more can be bought: every list of the choices ends here.\n"
                .to_owned();
        }
        let per = format!("requests/s for 1 {}", printable(&self.prices));
        let head = ["best purchases next", "price", "more requests/s", per.trim_end()];
        let mut grid = Grid::new("lrrr", &head);
        for purchase in &self.plan.purchases {
            let gain = match (purchase.gain, purchase.beyond_trust) {
                (0.0, _) => "none".to_owned(),
                (gain, false) => digits(gain, 4),
                (gain, true) => format!("{} ?", digits(gain, 4)),
            };
            let worth = purchase.gain_per_price.map_or("–".to_owned(), |w| digits(w, 3));
            grid.row([purchase.what.clone(), self.price(purchase.price), gain, worth]);
        }
        format!("\n{}", grid.text())
    }
}
