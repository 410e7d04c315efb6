//! Time weighed by the number of requests present: the work that a server does while its speed depends on that number.

/// When the number of requests present changes.
#[derive(Debug)]
pub(super) struct Clock {
    /// Arrivals and ends, ascending.
    events: Vec<f64>,
    /// Requests present from each event to the next.
    present: Vec<u32>,
    most: u32,
}

/// The integral of a function of the number present, up to any time.
#[derive(Debug)]
pub(super) struct Integral {
    /// Up to each event.
    sums: Vec<f64>,
    /// The function by the number present.
    values: Vec<f64>,
}

impl Clock {
    /// Of arrivals and ends, both ascending; the k-th end is not before the k-th arrival.
    pub fn new(arrivals: &[f64], ends: &[f64]) -> Clock {
        let all = arrivals.len() + ends.len();
        let (mut events, mut present) = (Vec::with_capacity(all), Vec::with_capacity(all));
        let (mut came, mut left, mut most) = (0, 0, 0);
        while came < arrivals.len() || left < ends.len() {
            let comes =
                came < arrivals.len() && ends.get(left).is_none_or(|end| arrivals[came] < *end);
            let at = if comes { arrivals[came] } else { ends[left] };
            if comes {
                came += 1;
            } else {
                left += 1;
            }
            let now = came.saturating_sub(left) as u32;
            most = most.max(now);
            events.push(at);
            present.push(now);
        }
        Clock { events, present, most }
    }

    /// The last event that is not after a time; `None` before the first.
    pub fn place(&self, time: f64) -> Option<usize> {
        self.events.partition_point(|event| *event <= time).checked_sub(1)
    }

    /// Requests present from an event on, at least the one that is looked at.
    pub fn present(&self, place: Option<usize>) -> u32 {
        place.map_or(1, |place| self.present[place].max(1))
    }

    /// The integral of a function of the number present.
    pub fn integral(&self, of: impl Fn(u32) -> f64) -> Integral {
        let values: Vec<f64> = (0..=self.most).map(of).collect();
        let mut sum = 0.0;
        let mut sums = Vec::with_capacity(self.events.len());
        for (i, event) in self.events.iter().enumerate() {
            if i > 0 {
                sum += (event - self.events[i - 1]) * values[self.present[i - 1] as usize];
            }
            sums.push(sum);
        }
        Integral { sums, values }
    }

    /// Its value up to a time, given the event before it.
    pub fn value(&self, integral: &Integral, place: Option<usize>, time: f64) -> f64 {
        place.map_or(0.0, |place| {
            let value = integral.values[self.present[place] as usize];
            integral.sums[place] + (time - self.events[place]) * value
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integral_counts_each_number_for_as_long_as_it_lasted() {
        // One from 0 to 1, two to 3, one to 4, none to 10, one to 11.
        let clock = Clock::new(&[0.0, 1.0, 10.0], &[3.0, 4.0, 11.0]);
        let number = clock.integral(f64::from);
        let at = |integral: &Integral, time| clock.value(integral, clock.place(time), time);
        assert_eq!((at(&number, 3.0), at(&number, 3.5), at(&number, 11.0)), (5.0, 5.5, 7.0));
        let two = clock.integral(|n| f64::from(u8::from(n == 2)));
        assert_eq!((at(&two, 2.0), at(&two, 9.0), at(&two, -1.0)), (1.0, 2.0, 0.0));
        assert_eq!((clock.most, clock.present(clock.place(1.0))), (2, 2));
        // The one that is looked at counts also where its arrival and another's end are alike.
        assert_eq!(clock.present(clock.place(4.5)), 1);
    }
}
