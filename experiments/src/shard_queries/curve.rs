//! Rates against footprints: at each, the fastest index of a side that is not larger.

use std::fmt::Write as _;

use super::measured::{Dataset, Engine, Query};
use report::grid::Grid;

/// Footprints that differ by no more than this are one point, as rates of sampling are whole numbers: a rival may
/// be larger than ours by so much and still be compared, and of ours that are as near to each other (one favours
/// searches and one extracts, as the rival's do) the largest is the point.
const SAME_POINT: f64 = 1.03;

/// The curves of one text.
pub struct Curve<'a> {
    /// What was measured.
    pub dataset: &'a Dataset,
    /// Queries of a batch, beside one at a time.
    pub batch: usize,
}

/// Our rate over the rival's at one footprint.
pub struct Ratio<'a> {
    /// × input.
    pub footprint: f64,
    /// In each round.
    pub rounds: Vec<f64>,
    /// The rival's index.
    pub rival: &'a Engine,
}

impl Ratio<'_> {
    /// The mean of the rounds.
    pub fn mean(&self) -> f64 {
        self.rounds.iter().sum::<f64>() / self.rounds.len() as f64
    }
}

impl<'a> Curve<'a> {
    /// The curves of what was measured.
    pub fn new(dataset: &'a Dataset) -> Curve<'a> {
        let ours = dataset.engines.iter().filter(|engine| engine.is_ours());
        let batch = ours.flat_map(|engine| &engine.rates).map(|rates| rates.batch).max();
        Curve { dataset, batch: batch.unwrap_or(1) }
    }

    /// The footprints at which both sides are compared, the smallest first: of ours that are one point the largest.
    pub fn footprints(&self) -> impl Iterator<Item = f64> {
        let ours = self.dataset.engines.iter().filter(|engine| engine.is_ours());
        let mut footprints: Vec<f64> = ours.map(|engine| engine.footprint).collect();
        footprints.sort_by(f64::total_cmp);
        let next = footprints.iter().skip(1).copied().chain([f64::INFINITY]);
        let last_of_point = |&(footprint, next): &(f64, f64)| next > footprint * SAME_POINT;
        let points: Vec<f64> =
            footprints.iter().copied().zip(next).filter(last_of_point).map(|(f, _)| f).collect();
        points.into_iter()
    }

    /// Our fastest index up to a footprint.
    pub fn ours(&self, footprint: f64, query: Query, batch: usize) -> Option<&'a Engine> {
        let ours = self.dataset.engines.iter().filter(|engine| engine.is_ours());
        fastest(ours.filter(|engine| engine.footprint <= footprint), query, batch)
    }

    /// The rival's fastest index up to a footprint, one query at a time: it has no batches.
    pub fn rival(&self, footprint: f64, query: Query) -> Option<&'a Engine> {
        let rivals = self.dataset.engines.iter().filter(|engine| !engine.is_ours());
        let small = rivals.filter(|engine| engine.footprint <= footprint * SAME_POINT);
        fastest(small, query, 1)
    }

    /// Our rate over the rival's; `None` where one of them has no index so small.
    pub fn ratio(&self, footprint: f64, query: Query, batch: usize) -> Option<Ratio<'a>> {
        let ours = self.ours(footprint, query, batch)?.rounds(query, batch)?;
        let rival = self.rival(footprint, query)?;
        let theirs = rival.rounds(query, 1)?;
        let rounds = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        Some(Ratio { footprint, rounds, rival })
    }

    /// What more memory gives in each round: our rate up to `high` over that up to `low`, of one kind of query,
    /// or (`None`) of searches and extracts of 64 bytes in turns. Empty where nothing is so small.
    pub fn gain(&self, low: f64, high: f64, query: Option<Query>) -> Vec<f64> {
        let seconds = |footprint: f64, query: Query| -> Option<Vec<f64>> {
            let rounds = self.ours(footprint, query, 1)?.rounds(query, 1)?;
            Some(rounds.iter().map(|rate| 1.0 / rate).collect())
        };
        let queries = match &query {
            Some(query) => std::slice::from_ref(query),
            None => &[Query::Search, Query::Extract64],
        };
        let total = |footprint: f64| -> Option<Vec<f64>> {
            let each: Option<Vec<_>> = queries.iter().map(|&q| seconds(footprint, q)).collect();
            let sum = |a: Vec<f64>, b: Vec<f64>| a.iter().zip(b).map(|(a, b)| a + b).collect();
            each?.into_iter().reduce(sum)
        };
        let (Some(before), Some(after)) = (total(low), total(high)) else { return Vec::new() };
        before.iter().zip(after).map(|(before, after)| before / after).collect()
    }

    /// The curves as tables.
    pub fn text(&self) -> String {
        let Dataset { name, bytes, hits_mean, .. } = self.dataset;
        let mut text = format!("{name}: {bytes} bytes, {hits_mean:.0} hits on average\n\n");
        let head = [
            "query",
            "batch",
            "× input",
            "ours, /s",
            "sdsl-lite, /s",
            "ratio",
            "ours",
            "sdsl-lite",
        ];
        let mut grid = Grid::new("lrrrrrll", &head);
        for query in Query::ALL {
            for batch in [1, self.batch] {
                for footprint in self.footprints() {
                    let Some(ours) = self.ours(footprint, query, batch) else { continue };
                    let rival = self.rival(footprint, query);
                    let rate = |engine: &Engine, batch: usize| {
                        engine.mean(query, batch).map_or(String::new(), |r| format!("{r:.0}"))
                    };
                    let ratio = self.ratio(footprint, query, batch);
                    grid.row([
                        query.in_words().to_owned(),
                        batch.to_string(),
                        format!("{footprint:.3}"),
                        rate(ours, batch),
                        rival.map_or("none so small".to_owned(), |rival| rate(rival, 1)),
                        ratio.map_or(String::new(), |ratio| format!("{:.1}", ratio.mean())),
                        ours.parameters.clone(),
                        rival.map_or(String::new(), |r| format!("{}, {}", r.index, r.parameters)),
                    ]);
                }
            }
        }
        let _ = writeln!(text, "{}", grid.text());
        text
    }
}

fn fastest<'a>(
    engines: impl Iterator<Item = &'a Engine>,
    query: Query,
    batch: usize,
) -> Option<&'a Engine> {
    let rated = engines.filter_map(|engine| Some((engine, engine.mean(query, batch)?)));
    rated.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(engine, _)| engine)
}

#[cfg(test)]
mod tests {
    use super::super::measured::Rates;
    use super::*;

    /// An index with the same rates for every kind of query; a batch doubles them.
    fn engine(index: &str, footprint: f64, per_s: &[f64], batches: &[usize]) -> Engine {
        let rates = Query::ALL.into_iter().flat_map(|query| {
            batches.iter().map(move |&batch| {
                let more = if batch > 1 { 2.0 } else { 1.0 };
                Rates { query, batch, per_s: per_s.iter().map(|rate| rate * more).collect() }
            })
        });
        let rates = rates.collect();
        Engine { index: index.to_owned(), parameters: format!("{footprint}"), footprint, rates }
    }

    fn dataset() -> Dataset {
        let ours = |footprint, per_s: &[f64]| engine("shard", footprint, per_s, &[1, 16]);
        let rival = |footprint, per_s: &[f64]| engine("csa_sada", footprint, per_s, &[1]);
        Dataset {
            name: "text".to_owned(),
            bytes: 1000,
            hits_mean: 100.0,
            ceiling: Vec::new(),
            engines: vec![
                ours(0.4, &[30.0, 60.0]),
                rival(0.45, &[8.0, 16.0]),
                rival(0.51, &[10.0, 20.0]),
                ours(0.49, &[20.0, 40.0]),
                ours(0.5, &[50.0, 100.0]),
                // Larger and slower: not what either side would take.
                ours(0.6, &[40.0, 80.0]),
                rival(0.6, &[9.0, 18.0]),
            ],
        }
    }

    #[test]
    fn each_side_takes_its_fastest_index_that_is_not_larger() {
        let dataset = dataset();
        let curve = Curve::new(&dataset);
        assert_eq!(curve.batch, 16);
        assert_eq!(curve.footprints().collect::<Vec<_>>(), [0.4, 0.5, 0.6]);
        assert!(curve.ratio(0.4, Query::Count, 1).is_none(), "the rival is not so small");
        let ratio = curve.ratio(0.6, Query::Count, 1).unwrap();
        assert_eq!((ratio.rounds, &*ratio.rival.parameters), (vec![5.0, 5.0], "0.51"));
        // 0.51 is within 3 % of 0.5.
        assert_eq!(curve.ratio(0.5, Query::Search, 16).unwrap().mean(), 10.0);
        assert!(curve.text().contains("none so small"));
    }

    #[test]
    fn gains_are_taken_within_rounds() {
        let dataset = dataset();
        let curve = Curve::new(&dataset);
        let gain = curve.gain(0.4, 0.55, Some(Query::Search));
        assert!(gain.iter().all(|gain| (gain - 50.0 / 30.0).abs() < 1e-9), "{gain:?}");
        assert_eq!(curve.gain(0.4, 0.55, None), gain, "both kinds gain the same here");
        assert!(curve.gain(0.3, 0.5, None).is_empty());
    }
}
