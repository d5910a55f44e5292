//! Coverage of the intervals and power of the tests, simulated with fixed seeds and printed as
//! tables: `cargo test -p ioloom-stats coverage -- --nocapture`.

#![allow(clippy::print_stdout, reason = "the tables are for a reader of the output")]

use crate::noise_source::Noise;
use ioloom_stats::{
    Bootstrap, CONFIDENCE, Claimed, Dependence, Ratio, Reason, Rule, SignWeight, SignedRank,
    aa_noise, benjamini_hochberg, decide, median, median_interval, shift_test, sign_test,
};

const STUDIES: usize = 2000;

/// Three standard errors of a share near 95 % over [`STUDIES`].
const ERROR: f64 = 3.0 * 0.0049;

/// Scatter of a block: symmetric, skewed with a long upper tail, and with rare large outliers. The
/// median of the ratio of two such arms is 1, because both have the same distribution.
fn scatter(noise: &mut Noise, kind: &str) -> f64 {
    match kind {
        "lognormal" => noise.lognormal(0.1),
        "exponential" => 1.0 - 0.5 * noise.uniform().ln(),
        "outliers" => noise.lognormal(0.05) * if noise.uniform() < 0.1 { 3.0 } else { 1.0 },
        _ => unreachable!("an unknown kind"),
    }
}

#[test]
fn coverage_of_paired_ratios_is_at_least_as_stated() {
    let mut noise = Noise::new(1);
    println!("blocks  lognormal  exponential  outliers  skewed ratio  stated");
    for n in (6..=30).chain([48]) {
        let mut row = Vec::new();
        for kind in ["lognormal", "exponential", "outliers"] {
            let covered = (0..STUDIES).filter(|_| {
                let a: Vec<f64> = (0..n).map(|_| 0.8 * scatter(&mut noise, kind)).collect();
                let b: Vec<f64> = (0..n).map(|_| scatter(&mut noise, kind)).collect();
                let r = Ratio::of(&a, &b).unwrap();
                r.lo <= 0.8 && 0.8 <= r.hi
            });
            row.push(covered.count() as f64 / STUDIES as f64);
        }
        // One arm is skewed and the other is not, so the ratio itself is skewed. Its median is that
        // of the exponential part.
        let truth = 1.0 + 0.5 * std::f64::consts::LN_2;
        let covered = (0..STUDIES).filter(|_| {
            let a: Vec<f64> = (0..n).map(|_| scatter(&mut noise, "exponential")).collect();
            let r = Ratio::of(&a, &vec![1.0; n]).unwrap();
            r.lo <= truth && truth <= r.hi
        });
        row.push(covered.count() as f64 / STUDIES as f64);
        let stated = median_interval(&vec![1.0; n], CONFIDENCE).unwrap().confidence;
        println!(
            "{n:6}  {:9.3}  {:11.3}  {:8.3}  {:12.3}  {stated:6.3}",
            row[0], row[1], row[2], row[3]
        );
        assert!(stated >= CONFIDENCE, "{n}: {stated}");
        for covered in row {
            assert!(covered >= CONFIDENCE - ERROR, "{n}: {covered}");
            assert!((covered - stated).abs() < ERROR, "{n}: {covered}, stated {stated}");
        }
    }
}

#[test]
fn below_six_blocks_only_the_range_is_given() {
    for n in 2..6 {
        let values: Vec<f64> = (1..=n).map(f64::from).collect();
        let range = median_interval(&values, CONFIDENCE).unwrap();
        assert_eq!((range.lo, range.hi), (1.0, f64::from(n)));
        assert!(!range.reaches_confidence(), "{range:?}");
        let any = Bootstrap::new(1).of(&values, |v| v.iter().sum()).unwrap();
        assert!(!any.reaches_confidence(), "{any:?}");
    }
    for n in 6..60 {
        let values: Vec<f64> = (1..=n).map(f64::from).collect();
        let interval = median_interval(&values, CONFIDENCE).unwrap();
        assert!(interval.reaches_confidence() && interval.confidence < 1.0, "{interval:?}");
        assert!(interval.contains(interval.estimate));
    }
    // scipy.stats.binom.cdf(k - 1, n, 0.5) for n = 12, k = 3; n = 9, k = 2; n = 30, k = 10
    for (n, lo, confidence) in
        [(12, 3.0, 0.961_425_781_25), (9, 2.0, 0.960_937_5), (30, 10.0, 0.957_226_049)]
    {
        let values: Vec<f64> = (1..=n).map(f64::from).collect();
        let interval = median_interval(&values, CONFIDENCE).unwrap();
        assert_eq!((interval.lo, interval.hi), (lo, f64::from(n + 1) - lo));
        assert!((interval.confidence - confidence).abs() < 1e-8, "{interval:?}");
    }
}

/// Statistics of medians over resampled blocks, as verdicts use them, keep 95 % from six blocks. Means
/// of skewed values do not, and no verdict uses them.
#[test]
fn coverage_of_resampled_statistics() {
    const STUDIES: usize = 600;
    let error = 3.0 * (0.95 * 0.05 / STUDIES as f64).sqrt();
    let mut noise = Noise::new(2);
    println!("blocks  growth over levels  crossing  unpaired ratio  mean (unused)");
    for n in [6, 12, 30] {
        let index: Vec<f64> = (0..n).map(|i| i as f64).collect();
        let mut hits = [0; 4];
        for i in 0..STUDIES {
            let boot = Bootstrap { resamples: 200, ..Bootstrap::new(i as u64) };
            let middle = |row: &[f64], drawn: &[f64]| {
                median(&drawn.iter().map(|i| row[*i as usize]).collect::<Vec<_>>())
            };
            let (low, high) = (noise.lognormals(n, 0.2), noise.lognormals(n, 0.2));
            let growth = boot.of(&index, |d| 4.0 * middle(&high, d) / middle(&low, d)).unwrap();
            // Logarithms of ratios at levels 1 and 2, which change sign at 1.5.
            let before: Vec<f64> = noise.normals(n).iter().map(|v| 0.1 * v - 0.2).collect();
            let after: Vec<f64> = noise.normals(n).iter().map(|v| 0.1 * v + 0.2).collect();
            let crossing = boot.of(&index, |d| {
                let (y, z) = (middle(&before, d), middle(&after, d));
                if y < 0.0 && z >= 0.0 { 1.0 - y / (z - y) } else { f64::NAN }
            });
            let skewed: Vec<f64> = (0..n).map(|_| scatter(&mut noise, "exponential")).collect();
            let other = noise.lognormals(n, 0.3);
            let truth = 1.0 + 0.5 * std::f64::consts::LN_2;
            let unpaired = boot.ratio_of_medians(&skewed, &other).unwrap();
            let mean = boot.of(&other, |v| v.iter().sum::<f64>() / v.len() as f64).unwrap();
            hits[0] += usize::from(growth.contains(4.0));
            hits[1] += usize::from(crossing.is_ok_and(|interval| interval.contains(1.5)));
            hits[2] += usize::from(unpaired.contains(truth));
            hits[3] += usize::from(mean.contains((0.5_f64 * 0.09).exp()));
        }
        let [growth, crossing, unpaired, mean] = hits.map(|hit| hit as f64 / STUDIES as f64);
        println!("{n:6}  {growth:18.3}  {crossing:8.3}  {unpaired:14.3}  {mean:13.3}");
        for covered in [growth, crossing, unpaired] {
            assert!(covered >= CONFIDENCE - error, "{n}: {covered}");
        }
    }
}

#[test]
fn signed_rank_probabilities_equal_a_count_of_all_signs() {
    let mut noise = Noise::new(3);
    for n in 1..=9 {
        let mut values = noise.normals(n);
        if n > 4 {
            // Ties share a rank.
            values[1] = -values[0];
            values[3] = values[2];
        }
        let sizes: Vec<f64> = values.iter().map(|v| v.abs()).collect();
        let rank = |v: f64| {
            let less = sizes.iter().filter(|s| **s < v).count();
            let same = sizes.iter().filter(|s| **s == v).count();
            less as f64 + (same as f64 + 1.0) / 2.0
        };
        let sum = |signs: u32| -> f64 {
            (0..n).filter(|i| signs >> i & 1 == 1).map(|i| rank(sizes[i])).sum()
        };
        let seen: f64 = values.iter().filter(|v| **v > 0.0).map(|v| rank(v.abs())).sum();
        let all = 1_u32 << n;
        let above = (0..all).filter(|s| sum(*s) >= seen - 1e-9).count() as f64 / f64::from(all);
        let below = (0..all).filter(|s| sum(*s) <= seen + 1e-9).count() as f64 / f64::from(all);
        let found = SignedRank::test(&values, 0.0).unwrap();
        assert!((found.above - above).abs() < 1e-12, "{n}: {found:?} {above}");
        assert!((found.below - below).abs() < 1e-12, "{n}: {found:?} {below}");
    }
    let all_above = SignedRank::test(&[1.0; 12], 0.5).unwrap();
    assert!((all_above.above - 1.0 / 4096.0).abs() < 1e-15);
    assert_eq!(SignedRank::test(&[1.0; 12], 1.0).unwrap().two_sided(), 1.0);
    // The normal approximation continues where the exact distribution ends.
    let long: Vec<f64> = noise.normals(121).iter().map(|v| v + 0.15).collect();
    let (exact, normal) =
        (SignedRank::test(&long[..120], 0.0).unwrap(), SignedRank::test(&long, 0.0).unwrap());
    assert!((exact.above - normal.above).abs() < 0.05, "{exact:?} {normal:?}");
}

#[test]
fn signed_ranks_keep_their_level_and_find_effects() {
    let mut noise = Noise::new(4);
    let share = |noise: &mut Noise, n: usize, sd: f64, ratio: f64, level: f64| {
        let hits = (0..STUDIES).filter(|_| {
            let logs: Vec<f64> = noise.normals(n).iter().map(|v| v * sd + ratio.ln()).collect();
            SignedRank::test(&logs, 0.0).unwrap().two_sided() <= level
        });
        hits.count() as f64 / STUDIES as f64
    };
    println!("blocks  scatter  ratio  found at 5 %  at 1 %");
    for (n, sd, ratio) in [(12, 0.1, 1.0), (12, 0.1, 0.88), (30, 0.2, 0.88), (48, 0.2, 0.88)] {
        let [five, one] = [0.05, 0.01].map(|level| share(&mut noise, n, sd, ratio, level));
        println!("{n:6}  {sd:7}  {ratio:5}  {five:12.3}  {one:6.3}");
        if ratio == 1.0 {
            assert!(five <= 0.05 + ERROR && one <= 0.01 + ERROR, "{five} {one}");
        } else {
            assert!(five >= 0.88 && one >= 0.7, "{n} {sd}: {five} {one}");
        }
    }
}

/// Two arms with the same median, one of which is skewed, are not called different more often than stated.
#[test]
fn coverage_of_differences_between_a_skewed_and_a_constant_arm() {
    let mut noise = Noise::new(6);
    let truth = 1.0 + 0.5 * std::f64::consts::LN_2;
    println!("blocks  called different  by signed ranks alone");
    for n in [12, 18, 24, 30, 48] {
        let (mut called, mut ranks) = (0, 0);
        for _ in 0..STUDIES {
            let a: Vec<f64> = (0..n).map(|_| scatter(&mut noise, "exponential") / truth).collect();
            let r = Ratio::of(&a, &vec![1.0; n]).unwrap();
            let rule = Rule { margin: 1e-6, blocks_min: 12 };
            let reasons = [Reason::ClaimedSide, Reason::OtherSide];
            called += usize::from(reasons.contains(&decide(&r, Claimed::Less, &rule).reason));
            ranks += usize::from(r.p <= 0.05);
        }
        let [called, ranks] = [called, ranks].map(|of| of as f64 / STUDIES as f64);
        println!("{n:6}  {called:16.3}  {ranks:21.3}");
        assert!(called <= 0.05 + ERROR, "{n}: {called}");
    }
}

/// The p-value that the correction for many contrasts uses keeps its level for skewed noise as well, and
/// never contradicts the interval of that level if the noise is clearly skewed.
#[test]
fn p_values_of_skewed_noise_keep_their_level_and_agree_with_the_interval() {
    let mut noise = Noise::new(8);
    println!("blocks  noise        p <= 5 %  p <= 1 %  by signed ranks alone  clearly skewed");
    for n in [12, 24, 48] {
        for kind in ["lognormal", "exponential", "outliers"] {
            let (mut hits, mut clear) = ([0_usize; 4], 0);
            // Medians. Nine in ten values without outliers are lognormal.
            let centre = match kind {
                "exponential" => (1.0 + 0.5 * std::f64::consts::LN_2).ln(),
                "outliers" => 0.05 * 0.139_710,
                _ => 0.0,
            };
            for _ in 0..STUDIES {
                let logs: Vec<f64> =
                    (0..n).map(|_| scatter(&mut noise, kind).ln() - centre).collect();
                let both = shift_test(&logs, 0.0).unwrap();
                let ranks = SignedRank::test(&logs, 0.0).unwrap();
                let weight = SignWeight::of(&logs);
                let above = both.above < both.below;
                let whole = if above { weight.above == 1.0 } else { weight.below == 1.0 };
                clear += usize::from(whole);
                for (at, level) in [0.05, 0.01].into_iter().enumerate() {
                    hits[at] += usize::from(both.two_sided() <= level);
                    hits[at + 2] += usize::from(ranks.two_sided() <= level);
                    let interval = median_interval(&logs, 1.0 - level).unwrap();
                    let (below, above) = sign_test(&logs, 0.0);
                    let excluded = !interval.contains(0.0);
                    assert_eq!(excluded, 2.0 * below.min(above) <= level + 1e-12, "{n} {logs:?}");
                    assert!(!whole || excluded || both.two_sided() > level, "{n} {logs:?}");
                }
            }
            let [five, one, ranks, ranks_one] = hits.map(|of| of as f64 / STUDIES as f64);
            let clear = clear as f64 / STUDIES as f64;
            println!(
                "{n:6}  {kind:11}  {five:8.3}  {one:8.3}  {ranks:14.3}, {ranks_one:.3}  {clear:14.3}"
            );
            assert!(five <= 0.06, "{n} {kind}: {five}");
            assert!(one <= 0.015, "{n} {kind}: {one}");
        }
    }
}

#[test]
fn the_false_discovery_rate_is_held_with_shared_arms() {
    let mut noise = Noise::new(5);
    let (mut share, mut found, mut effects) = (0.0, 0, 0);
    for _ in 0..300 {
        // Ten arms in twelve blocks; the last three are 20 % faster. Every arm is compared with the
        // first and with its neighbour, so baselines are shared and arms change sides.
        let arms: Vec<Vec<f64>> = (0..10)
            .map(|arm| {
                let level = if arm >= 7 { 0.8 } else { 1.0 };
                noise.lognormals(12, 0.1).iter().map(|v| v * level).collect()
            })
            .collect();
        let pairs = (1..10).map(|arm| (arm, 0)).chain((1..10).map(|arm| (arm, arm - 1)));
        let (mut p, mut same) = (Vec::new(), Vec::new());
        for (a, b) in pairs {
            let logs: Vec<f64> = arms[a].iter().zip(&arms[b]).map(|(a, b)| (a / b).ln()).collect();
            p.push(SignedRank::test(&logs, 0.0).unwrap().two_sided());
            same.push((a >= 7) == (b >= 7));
        }
        let adjusted = benjamini_hochberg(&p);
        let decided = adjusted.iter().filter(|q| **q <= 0.05).count();
        let wrong = adjusted.iter().zip(&same).filter(|(q, same)| **q <= 0.05 && **same).count();
        share += wrong as f64 / decided.max(1) as f64;
        found += decided - wrong;
        effects += same.iter().filter(|same| !**same).count();
    }
    let rate = share / 300.0;
    println!("false discovery rate {rate:.3}, power {:.3}", found as f64 / effects as f64);
    assert!(rate <= 0.06, "{rate}");
    assert!(found as f64 >= 0.9 * effects as f64, "{found} of {effects}");
    assert_eq!(benjamini_hochberg(&[0.01, 0.02, 0.03, f64::NAN]), [0.04, 0.04, 0.04, 1.0]);
    assert!(benjamini_hochberg(&[]).is_empty());
}

#[test]
fn dependence_between_blocks_is_found() {
    let mut noise = Noise::new(6);
    println!("blocks  autocorrelation  found");
    for (n, rho, least, most) in
        [(12, 0.0, 0.0, 0.035), (30, 0.0, 0.0, 0.035), (12, 0.6, 0.2, 0.6), (30, 0.6, 0.7, 1.0)]
    {
        let found = (0..600).filter(|_| {
            let mut last = noise.normals(1)[0];
            let values: Vec<f64> = (0..n)
                .map(|_| {
                    last = rho * last + (1.0 - rho * rho).sqrt() * noise.normals(1)[0];
                    last
                })
                .collect();
            Dependence::test(&values).unwrap().found
        });
        let share = found.count() as f64 / 600.0;
        println!("{n:6}  {rho:15}  {share:.3}");
        assert!((least..=most).contains(&share), "{n} {rho}: {share}");
    }
    assert!(!Dependence::test(&[7.0; 12]).unwrap().found);
    let alternating: Vec<f64> = (0..20).map(|i| f64::from(i % 2)).collect();
    assert!(!Dependence::test(&alternating).unwrap().found);
}

#[test]
fn the_noise_floor_shrinks_with_blocks_unless_order_matters() {
    let mut noise = Noise::new(7);
    let mut typical = |n: usize, second: f64| {
        let mut floors: Vec<f64> = (0..400)
            .map(|_| {
                let again: Vec<f64> = noise.lognormals(n, 0.1).iter().map(|v| v * second).collect();
                aa_noise(&noise.lognormals(n, 0.1), &again).unwrap().floor
            })
            .collect();
        floors.sort_by(f64::total_cmp);
        floors[200]
    };
    println!("blocks  floor of noise  floor with an order effect of 20 %");
    let mut before = f64::INFINITY;
    for n in [12, 48, 192] {
        let (plain, order) = (typical(n, 1.0), typical(n, 1.2));
        println!("{n:6}  {plain:14.3}  {order:10.3}");
        assert!(plain < 0.7 * before, "{n}: {plain} after {before}");
        assert!(order > 0.2, "{n}: {order}");
        before = plain;
    }
}
