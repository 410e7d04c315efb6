use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::gold::json as gold;
use crate::storage::Popularity;

fn close(found: f64, expected: f64, error: f64) {
    assert!((found - expected).abs() <= error, "{found:e}, not {expected:e}");
}

#[test]
fn che_agrees_with_gold() {
    let Some(file) = gold("cache/che_lru_zipf.json") else { return };
    for row in file["rows"].as_array().unwrap() {
        let of = |key: &str| row[key].as_f64().unwrap();
        let catalogue = Catalogue::zipf(of("objects") as u64, of("zipf")).unwrap();
        let hits = Cache::new(catalogue, Eviction::Lru).with_memory(of("cache")).unwrap();
        let off = [
            hits.characteristic_requests / of("T_C") - 1.0,
            hits.hit_ratio / of("che_hit") - 1.0,
            (hits.hit_ratio - of("lru_sim_hit")) / of("sim_se"),
        ];
        println!("T_C, hit ratio (relative), simulation (standard errors): {off:?}");
        assert!(off[0].abs() < 1e-6 && off[1].abs() < 1e-6 && off[2].abs() < 3.0, "{off:?}");
    }
}

/// Popularities of single objects, the naive way.
fn single(objects: u64, exponent: f64, shift: f64) -> Vec<f64> {
    let weights: Vec<f64> =
        (1..=objects).map(|k| ((k as f64 + shift) / (1.0 + shift)).powf(-exponent)).collect();
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|w| w / total).collect()
}

/// Che's fixed point by bisection over single objects (popularity, bytes): T and the hit ratio.
fn naive_che(objects: &[(f64, f64)], eviction: Eviction, memory: f64) -> (f64, f64) {
    let kept = |p: f64, t: f64| match eviction {
        Eviction::Lru => 1.0 - (-p * t).exp(),
        Eviction::Fifo => p * t / (1.0 + p * t),
    };
    let (mut low, mut high) = (0.0f64, 1e30f64);
    for _ in 0..70 {
        let t = if low > 0.0 { (low * high).sqrt() } else { high * 1e-6 };
        let filled: f64 = objects.iter().map(|&(p, b)| b * kept(p, t)).sum();
        if filled < memory {
            low = t;
        } else {
            high = t;
        }
        if low == 0.0 && high < 1e-6 {
            break;
        }
    }
    (high, objects.iter().map(|&(p, _)| p * kept(p, high)).sum())
}

#[test]
fn groups_are_as_good_as_single_objects() {
    for (objects, exponent, shift) in [
        (1, 1.0, 0.0),
        (7, 0.0, 0.0),
        (20_000, 0.0, 0.0),
        (20_000, 0.01, 0.0),
        (20_000, 0.6, 0.0),
        (20_000, 1.0, 0.0),
        (20_000, 1.3, 40.0),
        (20_000, 2.0, 0.0),
        (20_000, 0.9, 1e6),
        (3_000, 8.0, 0.0),
    ] {
        let catalogue = Catalogue::zipf_mandelbrot(objects, exponent, shift).unwrap();
        let popularities = single(objects, exponent, shift);
        close(catalogue.objects(), objects as f64, 1e-6);
        close(catalogue.bytes(), objects as f64, 1e-6);
        let squares: f64 = popularities.iter().map(|p| p * p).sum();
        close(catalogue.effective_objects() * squares, 1.0, 1e-6);
        for rank in [1, objects / 5 + 1, objects / 3 + 1, objects] {
            let of = catalogue.popularity_of_rank(rank) / popularities[rank as usize - 1];
            close(of, 1.0, 2e-3);
        }
        assert_eq!(catalogue.popularity_of_rank(objects + 1), 0.0);
        let top = objects as f64 / 10.0;
        let share: f64 = popularities.iter().take(top as usize).sum();
        if top.fract() == 0.0 {
            close(catalogue.share_of_top(top), share, 1e-5);
        }
        let bytes: Vec<(f64, f64)> = popularities.iter().map(|p| (*p, 1.0)).collect();
        for eviction in [Eviction::Lru, Eviction::Fifo] {
            let cache = Cache::new(catalogue.clone(), eviction);
            for part in [0.001, 0.03, 0.5, 0.97] {
                let memory = objects as f64 * part;
                let hits = cache.with_memory(memory).unwrap();
                let (time, hit) = naive_che(&bytes, eviction, memory);
                close(hits.characteristic_requests / time, 1.0, 3e-6);
                close(hits.hit_ratio, hit, 1e-7);
                close(hits.objects / memory, 1.0, 1e-9);
                close(
                    hits.of_object(popularities[0]),
                    eviction.resident_share(popularities[0] * time),
                    1e-6,
                );
                let back = cache.memory_for(hits.hit_ratio).unwrap();
                // With s = 8 all but some objects have next to nothing: many memories, one hit
                // ratio.
                if hits.hit_ratio < 1.0 - 1e-9 {
                    close(back / memory, 1.0, 1e-6);
                }
            }
        }
    }
}

#[test]
fn ten_million_objects_are_few_groups() {
    for (exponent, groups) in [(0.0, 1), (0.8, 9_000), (1.0, 11_000), (3.0, 30_000)] {
        let catalogue = Catalogue::zipf(10_000_000, exponent).unwrap();
        assert!(catalogue.groups().len() <= groups, "{exponent}: {}", catalogue.groups().len());
        // Of single objects, and by the integral beyond: popularity of the first is 1/H.
        let direct: f64 = (1..=10_000_000u32).map(|k| f64::from(k).powf(-exponent)).sum();
        close(catalogue.popularity_of_rank(1) * direct, 1.0, 1e-9);
        let hits = Cache::new(catalogue, Eviction::Lru).with_memory(1e5).unwrap();
        assert!(hits.hit_ratio > 0.0 && hits.hit_ratio <= 1.0);
    }
}

#[test]
fn weights_counts_and_sizes_make_the_same_catalogue() {
    let zipf = Catalogue::zipf(5_000, 0.9).unwrap();
    let mut weights = single(5_000, 0.9, 0.0);
    weights.reverse();
    let cache = |c: Catalogue| Cache::new(c, Eviction::Lru).with_memory(300.0).unwrap().hit_ratio;
    let expected = cache(zipf.clone());
    close(cache(Catalogue::from_weights(weights.clone()).unwrap()), expected, 1e-7);
    let scaled = weights.iter().map(|w| w * 1e250);
    close(cache(Catalogue::from_weights(scaled).unwrap()), expected, 1e-7);
    let counts = Catalogue::from_counts([3, 0, 3, 1, 1]).unwrap();
    assert_eq!((counts.objects(), counts.groups().len()), (4.0, 2));
    close(counts.groups()[0].popularity, 0.375, 1e-15);
    // Sizes drawn without regard to popularity: with all memory counted in mean sizes nearly the
    // same.
    let sizes = zipf.clone().with_sizes(&[(1.0, 1.0), (3.0, 1.0)]).unwrap();
    close(sizes.bytes(), 10_000.0, 1e-6);
    close(sizes.request_bytes(), 2.0, 1e-9);
    let mixed = Cache::new(sizes, Eviction::Lru).with_memory(600.0).unwrap();
    close(mixed.hit_ratio, expected, 1e-9);
    close(mixed.byte_hit_ratio, expected, 1e-9);
    // Popular objects are small: fewer bytes than requests hit.
    let small_first = weights.iter().enumerate().map(|(i, w)| (*w, 5_001.0 - i as f64));
    let objects: Vec<(f64, f64)> = small_first.collect();
    let mean = objects.iter().map(|o| o.1).sum::<f64>() / 5_000.0;
    let hits = Cache::new(Catalogue::from_objects(objects.clone()).unwrap(), Eviction::Lru)
        .with_memory(300.0 * mean)
        .unwrap();
    assert!(hits.hit_ratio > expected && hits.byte_hit_ratio < hits.hit_ratio, "{hits:?}");
    let (_, naive) = naive_che(&objects, Eviction::Lru, 300.0 * mean);
    close(hits.hit_ratio, naive, 1e-6);
}

/// A memory of equal objects in use: hit ratio over `requests` requests after `warm` more.
fn simulated(popularities: &[f64], eviction: Eviction, room: usize, warm: usize, n: usize) -> f64 {
    let mut rng = StdRng::seed_from_u64(11);
    let mut sums: Vec<f64> = Vec::new();
    for p in popularities {
        sums.push(sums.last().unwrap_or(&0.0) + p);
    }
    // Least recently used: the time of the last request; first in first out: of entry.
    let mut since = vec![0usize; popularities.len()];
    let mut order = std::collections::BTreeMap::new();
    let mut hits = 0;
    for now in 1..=warm + n {
        let u: f64 = rng.random();
        let object = sums.partition_point(|s| *s < u).min(popularities.len() - 1);
        let found = since[object] > 0;
        hits += usize::from(found && now > warm);
        if found && eviction == Eviction::Lru {
            order.remove(&since[object]);
        }
        if !found || eviction == Eviction::Lru {
            since[object] = now;
            order.insert(now, object);
        }
        if order.len() > room {
            let (_, out) = order.pop_first().unwrap();
            since[out] = 0;
        }
    }
    hits as f64 / n as f64
}

#[test]
fn memories_in_use_have_the_hits_that_che_says() {
    let n = 150_000;
    for (exponent, room) in [(0.7, 200), (1.0, 50), (0.0, 400)] {
        let popularities = single(2_000, exponent, 0.0);
        for eviction in [Eviction::Lru, Eviction::Fifo] {
            let cache = Cache::new(Catalogue::zipf(2_000, exponent).unwrap(), eviction);
            let expected = cache.with_memory(room as f64).unwrap().hit_ratio;
            let found = simulated(&popularities, eviction, room, 20_000, n);
            close(found, expected, 0.006);
        }
    }
}

#[test]
fn levels_share_what_is_asked_for() {
    let catalogue = Catalogue::zipf(20_000, 0.9).unwrap().with_bytes(10.0).unwrap();
    let lru = |bytes| Level { bytes, keeps: Keeps::Evicting(Eviction::Lru) };
    let top = |bytes| Level { bytes, keeps: Keeps::MostPopular };
    // One level is the memory itself.
    let one = hierarchy(&catalogue, &[lru(5e3)]).unwrap();
    let hits = Cache::new(catalogue.clone(), Eviction::Lru).with_memory(5e3).unwrap();
    close(one[0].share, hits.hit_ratio, 1e-12);
    close(one[1].share, 1.0 - hits.hit_ratio, 1e-12);
    // The most popular alone: their popularity. Split within a group.
    let hot = hierarchy(&catalogue, &[top(10_005.0)]).unwrap();
    close(hot[0].share, catalogue.share_of_top(1_000.5), 1e-9);
    // Memory before them takes from them, not from the bulk that they spare.
    let three = hierarchy(&catalogue, &[lru(5e3), top(1e4), lru(f64::INFINITY)]).unwrap();
    let by_hand: f64 = single(20_000, 0.9, 0.0)
        .iter()
        .take(1_000)
        .map(|p| p * (-p * hits.characteristic_requests).exp())
        .sum();
    close(three[1].share, by_hand, 1e-5);
    assert_eq!(three[3].share, 0.0);
    close(three.iter().map(|a| a.share).sum(), 1.0, 1e-12);
    close(three.iter().map(|a| a.byte_share).sum(), 1.0, 1e-12);
    // Everything at the first level, and nothing.
    assert_eq!(hierarchy(&catalogue, &[lru(1e9), top(1e9)]).unwrap()[0].share, 1.0);
    assert_eq!(hierarchy(&catalogue, &[]).unwrap()[0].share, 1.0);
    assert_eq!(hierarchy(&catalogue, &[top(0.0), lru(0.0)]).unwrap()[2].share, 1.0);
    for bad in [-1.0, f64::NAN, f64::NEG_INFINITY] {
        assert!(hierarchy(&catalogue, &[lru(bad)]).is_err());
    }
}

#[test]
fn a_second_level_in_use_has_nearly_the_hits_that_che_says() {
    let popularities = single(5_000, 0.8, 0.0);
    let catalogue = Catalogue::zipf(5_000, 0.8).unwrap();
    let mut rng = StdRng::seed_from_u64(3);
    let mut sums: Vec<f64> = Vec::new();
    for p in &popularities {
        sums.push(sums.last().unwrap_or(&0.0) + p);
    }
    use Eviction::{Fifo, Lru};
    for (rooms, evicts, error) in [
        ([100usize, 1_500], [Lru, Lru], 0.01),
        ([300, 600], [Lru, Lru], 0.01),
        ([500, 500], [Lru, Lru], 0.01),
        ([300, 600], [Lru, Fifo], 0.02),
        ([300, 600], [Fifo, Lru], 0.01),
        ([300, 1_500], [Fifo, Fifo], 0.02),
    ] {
        let mut levels = [(); 2].map(|()| (vec![0usize; 5_000], std::collections::BTreeMap::new()));
        let (warm, n) = (20_000, 120_000);
        let mut hits = [0usize; 2];
        for now in 1..=warm + n {
            let u: f64 = rng.random();
            let object = sums.partition_point(|s| *s < u).min(4_999);
            for (i, (since, order)) in levels.iter_mut().enumerate() {
                let found = since[object] > 0;
                if !found || evicts[i] == Lru {
                    order.remove(&since[object]);
                    since[object] = now;
                    order.insert(now, object);
                }
                if order.len() > rooms[i] {
                    let (_, out) = order.pop_first().unwrap();
                    since[out] = 0;
                }
                if found {
                    hits[i] += usize::from(now > warm);
                    break;
                }
            }
        }
        let level = |i: usize| Level { bytes: rooms[i] as f64, keeps: Keeps::Evicting(evicts[i]) };
        let levels = [level(0), level(1)];
        let expected = hierarchy(&catalogue, &levels).unwrap();
        let found = hits.map(|h| h as f64 / n as f64);
        println!("{rooms:?} {evicts:?}: {} for {} simulated", expected[1].share, found[1]);
        close(found[0], expected[0].share, 0.006);
        close(found[1], expected[1].share, error);
    }
}

#[test]
fn popularity_for_clusters_is_the_slope_of_the_curve() {
    let cache = Cache::new(Catalogue::zipf(100_000, 0.8).unwrap(), Eviction::Lru);
    for factor in [0.5, 1.0, 2.0, 10.0] {
        let popularity = cache.popularity(5_000.0, factor).unwrap();
        let change = cache.with_memory(5_000.0 * factor).unwrap().hit_ratio
            / cache.with_memory(5_000.0).unwrap().hit_ratio;
        close(popularity.factor(factor), change, 1e-9);
    }
    // Equally popular: half the memory, half the hits.
    let equal = Cache::new(Catalogue::zipf(100_000, 0.0).unwrap(), Eviction::Fifo);
    let found = equal.popularity(1_000.0, 4.0).unwrap();
    close(found.factor(4.0), Popularity::EQUAL.factor(4.0), 1e-9);
    assert!(cache.popularity(0.0, 2.0).is_err() && cache.popularity(1.0, f64::NAN).is_err());
    assert!(cache.popularity(1e-300, 2.0).is_ok_and(|p| p.factor(2.0) > 1.0));
}

#[test]
fn impossible_catalogues_and_questions_are_errors() {
    for bad in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(Catalogue::zipf(10, bad).is_err());
        assert!(Catalogue::zipf_mandelbrot(10, 1.0, bad).is_err());
        assert!(Catalogue::from_weights([1.0, bad]).is_err());
        assert!(Catalogue::from_objects([(1.0, bad)]).is_err());
        let catalogue = Catalogue::zipf(10, 1.0).unwrap();
        assert!(catalogue.clone().with_bytes(bad).is_err());
        assert!(catalogue.clone().with_sizes(&[(1.0, bad)]).is_err());
        let cache = Cache::new(catalogue, Eviction::Lru);
        assert!(cache.with_memory(bad).is_err() && cache.memory_for(bad).is_err());
    }
    assert!(Catalogue::zipf(0, 1.0).is_err());
    assert!(Catalogue::zipf(10, 21.0).is_err());
    assert!(Catalogue::from_weights([]).is_err() && Catalogue::from_counts([0, 0]).is_err());
    assert!(Catalogue::from_objects([(1.0, 0.0)]).is_err());
    assert!(Catalogue::zipf(10, 1.0).unwrap().with_sizes(&[]).is_err());
    assert!(Catalogue::zipf(10, 1.0).unwrap().with_sizes(&[(1.0, 0.0)]).is_err());
    let cache = Cache::new(Catalogue::zipf(10, 1.0).unwrap(), Eviction::Fifo);
    assert_eq!(cache.with_memory(0.0).unwrap().hit_ratio, 0.0);
    assert_eq!(cache.with_memory(10.0).unwrap().hit_ratio, 1.0);
    assert_eq!((cache.memory_for(0.0).unwrap(), cache.memory_for(1.0).unwrap()), (0.0, 10.0));
    assert_eq!(cache.with_memory(1.0).unwrap().of_object(f64::NAN), 0.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn hit_ratios_grow_with_memory_and_come_back(
        objects in 1u64..1_000_000_000, exponent in 0.0f64..4.0, shift in 0.0f64..100.0,
        part in 1e-6f64..1.0, fifo in any::<bool>(),
    ) {
        let catalogue = Catalogue::zipf_mandelbrot(objects, exponent, shift).unwrap();
        let eviction = if fifo { Eviction::Fifo } else { Eviction::Lru };
        let cache = Cache::new(catalogue, eviction);
        let memory = objects as f64 * part;
        let (less, hits) = (cache.with_memory(memory * 0.9).unwrap(), cache.with_memory(memory).unwrap());
        prop_assert!((0.0..=1.0).contains(&hits.hit_ratio));
        prop_assert!(less.hit_ratio <= hits.hit_ratio);
        // No memory does better than to hold the most popular.
        prop_assert!(hits.hit_ratio <= cache.catalogue().share_of_top(memory) + 1e-4);
        prop_assert!(hits.characteristic_requests.is_infinite() || (hits.objects / memory - 1.0).abs() < 1e-9);
        let back = cache.memory_for(hits.hit_ratio).unwrap();
        prop_assert!((cache.with_memory(back).unwrap().hit_ratio - hits.hit_ratio).abs() < 1e-9);
        let lru = Cache::new(cache.catalogue().clone(), Eviction::Lru).with_memory(memory).unwrap();
        prop_assert!(lru.hit_ratio >= hits.hit_ratio - 1e-9, "LRU is not below FIFO");
    }

    #[test]
    fn levels_answer_shares_that_add_to_one(
        objects in 1u64..100_000_000, exponent in 0.0f64..3.0,
        levels in prop::collection::vec((0u8..3, -9.0f64..0.5), 0..5), none in any::<bool>(),
    ) {
        let catalogue = Catalogue::zipf(objects, exponent).unwrap();
        let keeps = [
            Keeps::Evicting(Eviction::Lru), Keeps::Evicting(Eviction::Fifo), Keeps::MostPopular,
        ];
        let bytes = |part: f64| if none && part < -6.0 { 0.0 } else { catalogue.bytes() * 10f64.powf(part) };
        let level = |&(kind, part): &(u8, f64)| Level { bytes: bytes(part), keeps: keeps[usize::from(kind)] };
        let levels: Vec<Level> = levels.iter().map(level).collect();
        let answered = hierarchy(&catalogue, &levels).unwrap();
        prop_assert_eq!(answered.len(), levels.len() + 1);
        for of in [|a: &LevelShares| a.share, |a: &LevelShares| a.byte_share] {
            prop_assert!(answered.iter().all(|a| (0.0..=1.0).contains(&of(a))), "{answered:?}");
            let sum: f64 = answered.iter().map(of).sum();
            prop_assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        }
    }

    #[test]
    fn any_numbers_make_an_error_or_an_answer(
        objects in prop::collection::vec((any::<f64>(), any::<f64>()), 0..20),
        positive in prop::collection::vec((1e-300f64..1e300, 1e-9f64..1e18), 1..20),
        memory in any::<f64>(), hit_ratio in any::<f64>(),
    ) {
        for objects in [objects, positive] {
            let Ok(catalogue) = Catalogue::from_objects(objects) else { continue };
            for eviction in [Eviction::Lru, Eviction::Fifo] {
                let cache = Cache::new(catalogue.clone(), eviction);
                for memory in [memory, memory.abs() % catalogue.bytes()] {
                    if let Ok(hits) = cache.with_memory(memory) {
                        prop_assert!((0.0..=1.0).contains(&hits.hit_ratio), "{hits:?}");
                        prop_assert!((0.0..=1.0).contains(&hits.byte_hit_ratio), "{hits:?}");
                        prop_assert!(!hits.characteristic_requests.is_nan());
                    }
                }
                for hit_ratio in [hit_ratio, hit_ratio.abs() % 1.0] {
                    if let Ok(memory) = cache.memory_for(hit_ratio) {
                        prop_assert!(memory >= 0.0 && memory <= catalogue.bytes() * (1.0 + 1e-9));
                    }
                }
            }
        }
    }
}

#[test]
fn a_table_of_the_curve_is_the_curve() {
    for eviction in [Eviction::Lru, Eviction::Fifo] {
        for (objects, exponent) in
            [(1_000, 0.0), (100_000, 0.6), (100_000, 1.1), (3, 2.0), (1, 0.0)]
        {
            let catalogue = Catalogue::zipf(objects, exponent).unwrap().with_bytes(1e3).unwrap();
            let cache = Cache::new(catalogue, eviction);
            let curve = cache.curve();
            let all = objects as f64 * 1e3;
            for part in [1e-6, 1e-3, 0.01, 0.1, 0.3, 0.7, 0.95, 0.999, 1.0, 2.0] {
                let (found, naive) =
                    (curve.hit_ratio(part * all), cache.with_memory(part * all).unwrap().hit_ratio);
                assert!(
                    (found - naive).abs() < 5e-4,
                    "{objects} {exponent} {part}: {found} {naive}"
                );
                let back = curve.hit_ratio(curve.memory_for(found));
                assert!((back - found).abs() < 1e-9, "{found} {back}");
            }
            assert_eq!(
                (curve.hit_ratio(0.0), curve.hit_ratio(f64::NAN), curve.hit_ratio(f64::INFINITY)),
                (0.0, 0.0, 1.0)
            );
            assert_eq!((curve.memory_for(-1.0), curve.memory_for(f64::NAN)), (0.0, 0.0));
            close(curve.memory_for(3.0) / all, 1.0, 1e-12);
        }
    }
}

#[test]
fn a_part_of_a_catalogue_is_a_larger_memory_for_the_whole() {
    use crate::storage::HitLaw;
    let weights: Vec<f64> = (1..=40_000).map(|k| f64::from(k).powf(-0.7)).collect();
    let whole = Cache::new(Catalogue::from_weights(weights.clone()).unwrap(), Eviction::Lru);
    // Every fourth object, as a ring with four nodes would place them.
    let part = weights.into_iter().skip(2).step_by(4);
    let part = Cache::new(Catalogue::from_weights(part).unwrap(), Eviction::Lru);
    let curve = whole.curve();
    for bytes in [100.0, 1_000.0, 4_000.0] {
        let now = whole.with_memory(bytes).unwrap().hit_ratio;
        let found = now * curve.change(now, 4.0);
        let naive = part.with_memory(bytes).unwrap().hit_ratio;
        assert!((found - naive).abs() < 0.01, "{bytes}: {found} {naive}");
    }
    // Where a server stands follows from its hit ratio, so changes undo each other.
    let there = 0.3 * curve.change(0.3, 2.5);
    close(there * curve.change(there, 0.4), 0.3, 1e-9);
    assert_eq!((curve.change(0.0, 2.0), curve.change(f64::NAN, 2.0)), (1.0, 1.0));
    close(curve.change(1.0, 2.0), 1.0, 1e-12);
    assert!(curve.change(1.0, 0.5) < 1.0);
}

#[test]
fn a_stream_is_a_law_too() {
    use crate::storage::HitLaw;
    let mut shards = Shards::exact();
    // 100 keys in turn, and one that is asked for every second time.
    for i in 0..20_000u64 {
        shards.push(if i % 2 == 0 { 1_000 } else { i / 2 % 100 }, 1);
    }
    let curve = shards.curve().unwrap();
    // A memory of one key has half the hits; all of them need 101.
    close(curve.change(0.5, 1e-3), 0.0, 1e-9);
    let all = curve.point(101.0).unwrap().hit_ratio.value;
    close(curve.change(all, 10.0), 1.0, 1e-9);
    close(curve.change(all, 0.5), 0.5 / all, 0.01);
    // More than the stream would have had stands for everything.
    close(curve.change(1.0, 0.5), curve.change(all, 0.5), 1e-12);
    assert_eq!(curve.change(f64::NAN, 2.0), 1.0);
}
