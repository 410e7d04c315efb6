mod weeks;

use super::*;

fn settings() -> Settings {
    Settings { bytes_max: 1600, objects_least: 200, smoothing: 1.0, ..Settings::default() }
}

/// A driver that applies limits at once. Returns the moves, all of which are made.
fn drive(
    divider: &mut Divider,
    seconds: std::ops::Range<u64>,
    saved_s: &[f64],
    of: impl Fn(u64) -> Layers,
) -> Vec<(u64, Move)> {
    let mut moves = Vec::new();
    for second in seconds {
        let now = second * SECOND;
        let limit = divider.objects_bytes();
        let objects = Objects { held_bytes: limit, bytes_max: limit, saved_s: saved_s.to_vec() };
        let layers = Layers { bytes_max: divider.layers_bytes(), ..of(divider.layers_bytes()) };
        if let Some(of) = divider.observe(now, &objects, &layers) {
            moves.push((second, of.clone()));
            divider.begin(now, of);
        }
        assert!(divider.objects_bytes() + divider.layers_bytes() <= 1600);
    }
    moves
}

/// The first `full` sixteenths save `each` seconds, further ones nothing.
fn curve(full: usize, each: f64) -> Vec<f64> {
    (0..=16).map(|part: usize| part.min(full) as f64 * each).collect()
}

#[test]
fn objects_grow_by_what_they_gain_at_a_bounded_rate() {
    let mut divider = Divider::new(settings());
    let moves = drive(&mut divider, 0..60, &curve(9, 0.01), |_| Layers::default());
    assert_eq!(moves[0].1.from, Party::Free);
    assert_eq!(moves[0].0, 11, "ten seconds after it was first wanted");
    assert_eq!(divider.objects_bytes(), 900, "{moves:?}");
    let moved: Vec<u64> = moves.iter().map(|(second, _)| *second).collect();
    // Later: the last byte is worth nothing any more.
    let later = drive(&mut divider, 60..2000, &curve(5, 0.01), |_| Layers::default());
    assert!(later[0].0 >= 60 + 600 && later[0].1.to == Party::Free, "{moved:?} {later:?}");
    assert_eq!(divider.objects_bytes(), 500);
    drive(&mut divider, 2000..4000, &curve(0, 0.0), |_| Layers::default());
    assert_eq!(divider.objects_bytes(), 200, "its least");
}

#[test]
fn a_layer_is_gained_as_a_whole_or_not_at_all() {
    let wish = |saved_s: f64| {
        move |had: u64| {
            let missing = 700u64.saturating_sub(had);
            let wish = (missing > 0).then_some(Lump { bytes: missing, saved_s });
            Layers { held_bytes: if had >= 700 { 700 } else { 0 }, wish, ..Layers::default() }
        }
    };
    for (saved_s, expected) in [(0.001, 0), (0.05, 0), (0.07, 700), (f64::NAN, 0)] {
        let mut divider = Divider::new(settings());
        // Objects take 1200 bytes first.
        drive(&mut divider, 0..60, &curve(12, 0.01), |_| Layers::default());
        assert_eq!(divider.objects_bytes(), 1200);
        // 400 bytes are free; 300 more save 0.03 s where they are.
        let moves = drive(&mut divider, 60..120, &curve(12, 0.01), wish(saved_s));
        assert_eq!(divider.layers_bytes(), expected, "{saved_s}: {moves:?}");
    }
}

#[test]
fn a_limit_rises_only_after_the_other_is_seen_to_have_fallen() {
    let mut divider = Divider::new(settings());
    drive(&mut divider, 0..60, &curve(14, 0.01), |_| Layers::default());
    assert_eq!(divider.objects_bytes(), 1400);
    let wish = Some(Lump { bytes: 500, saved_s: 9.0 });
    let layers = Layers { wish, ..Layers::default() };
    let mut saved = curve(14, 0.01);
    saved.truncate(3);
    saved.push(f64::NAN);
    // The tier's limit is reported as it was: what it no longer may hold is not granted to others.
    let stale = Objects { held_bytes: 1400, bytes_max: 1400, saved_s: saved };
    let mut moves = 0;
    for second in 60..90 {
        if let Some(of) = divider.observe(second * SECOND, &stale, &layers) {
            moves += 1;
            divider.begin(second * SECOND, of);
        }
    }
    assert_eq!((moves, divider.objects_bytes(), divider.layers_bytes()), (1, 1100, 200));
    let fresh = Objects { held_bytes: 900, bytes_max: 1100, ..stale };
    (90..100).for_each(|second| {
        divider.observe(second * SECOND, &fresh, &layers);
    });
    assert_eq!(divider.layers_bytes(), 500);
}

#[test]
fn what_is_refused_is_not_proposed_again_soon_and_fixed_bytes_come_first() {
    let mut divider = Divider::new(settings());
    let layers = Layers { least_bytes: 5000, ..Layers::default() };
    let objects = Objects { held_bytes: 0, bytes_max: 200, saved_s: Vec::new() };
    let mut proposed = Vec::new();
    for second in 0..100 {
        if let Some(of) = divider.observe(second * SECOND, &objects, &layers) {
            proposed.push((second, of.bytes));
            divider.refuse(second * SECOND);
        }
    }
    assert_eq!(proposed, [(11, 1400), (81, 1400)], "all that there is, but for the objects' least");
}

#[test]
fn a_budget_of_nothing_or_of_all_bytes_is_no_error() {
    for bytes_max in [0, 1, u64::MAX] {
        let mut divider = Divider::new(Settings { bytes_max, objects_least: 7, ..settings() });
        let layers = Layers {
            wish: Some(Lump { bytes: u64::MAX, saved_s: 1.0 }),
            spare: Some(Lump { bytes: u64::MAX, saved_s: 0.0 }),
            held_bytes: u64::MAX,
            bytes_max: u64::MAX,
            least_bytes: 0,
        };
        for second in 0..100 {
            let saved_s = vec![f64::INFINITY, -1.0, f64::NAN];
            let objects = Objects { held_bytes: u64::MAX, bytes_max: u64::MAX, saved_s };
            if let Some(of) = divider.observe(second * SECOND, &objects, &layers) {
                divider.begin(second * SECOND, of);
            }
        }
        assert_eq!(divider.sizes().last(), Some(&bytes_max));
    }
}
