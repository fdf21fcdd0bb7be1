//! The chart of the README: requests/s and CPU when saturated, latency at fixed rates; medians, with marks at the lowest and highest run.

use crate::bench::compare::{OPEN_LOOP, RATES, open_loop_name};
use crate::bench::machine::Machine;
use crate::bench::measure::Run;
use crate::bench::report::spread;
use crate::bench::scenario::Measured;
use crate::bench::settings::Settings;
use crate::bench::spread::Spread;
use crate::bench::svg::{Anchor, Svg};
use crate::bench::table::grouped;

/// A rectangle of the picture, within which a panel draws its data.
#[derive(Debug, Clone, Copy)]
struct Area {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

/// A bar: parts one behind the other, with the spread of their sum.
struct Bar {
    label: String,
    parts: Vec<(&'static str, f64)>,
    spread: Spread,
    figure: String,
}

const TITLE: &str = "What a decision costs";
const TOP: Area = Area { x: 120.0, y: 106.0, width: 270.0, height: 170.0 };
const BOTTOM: Area = Area { x: 70.0, y: 374.0, width: 330.0, height: 190.0 };
const RIGHT: f64 = 470.0; // from a left panel to its right neighbour

/// Draws it.
#[must_use]
pub fn draw(
    machine: &Machine,
    settings: &Settings,
    saturated: &[Measured],
    open_loop: &[Measured],
) -> String {
    let mut svg = Svg::new(940.0, 640.0);
    svg.text("title", Anchor::Start, (24.0, 34.0), TITLE);
    let how = format!(
        "Envoy {} with one worker, 32 connections; {} cores of {}; medians of {} interleaved rounds, marks at lowest and highest",
        machine.envoy, machine.cores, machine.cpu, settings.rounds
    );
    svg.text("dim", Anchor::Start, (24.0, 54.0), &how);
    bars(
        &mut svg,
        TOP,
        "Requests/s, saturated",
        &saturated.iter().filter_map(throughput).collect::<Vec<_>>(),
    );
    let right = Area { x: TOP.x + RIGHT, ..TOP };
    bars(
        &mut svg,
        right,
        "CPU µs per request, saturated",
        &saturated.iter().filter_map(cpu).collect::<Vec<_>>(),
    );
    legend(
        &mut svg,
        (right.x, right.y + right.height + 36.0),
        &[("grey", "Envoy"), ("blue", "sidecar"), ("red", "Redis")],
    );
    points(&mut svg, BOTTOM, "p50 in µs at fixed rates", open_loop, |run| run.p50_us);
    let right = Area { x: BOTTOM.x + RIGHT, ..BOTTOM };
    points(&mut svg, right, "p99 in µs at fixed rates", open_loop, |run| run.p99_us);
    let series: Vec<_> = OPEN_LOOP.iter().map(|(name, _)| (colour(name), *name)).collect();
    legend(&mut svg, (BOTTOM.x, BOTTOM.y + BOTTOM.height + 56.0), &series);
    svg.text("dim", Anchor::Start, (right.x, BOTTOM.y + BOTTOM.height + 56.0), &failed_open(open_loop));
    svg.finish(TITLE)
}

fn colour(name: &str) -> &'static str {
    match name {
        "local_ratelimit" => "amber",
        "exact_memory" => "teal",
        "exact_redis" => "blue",
        _ => "grey",
    }
}

fn throughput(scenario: &Measured) -> Option<Bar> {
    let spread = spread(&scenario.runs, |run| Some(run.rps))?;
    let parts = vec![(colour(&scenario.name), spread.median)];
    Some(Bar { label: scenario.name.clone(), parts, spread, figure: grouped(spread.median) })
}

fn cpu(scenario: &Measured) -> Option<Bar> {
    let median = |of: fn(&Run) -> Option<f64>| spread(&scenario.runs, of).map_or(0.0, |spread| spread.median);
    let parts = vec![
        ("grey", median(|run| run.cpu_us.envoy)),
        ("blue", median(|run| run.cpu_us.sidecar)),
        ("red", median(|run| run.cpu_us.redis)),
    ];
    let sum = spread(&scenario.runs, |run| {
        let others = [run.cpu_us.sidecar, run.cpu_us.redis];
        Some(run.cpu_us.envoy? + others.into_iter().flatten().sum::<f64>())
    })?;
    let figures: Vec<_> =
        parts.iter().filter(|(_, us)| *us > 0.0).map(|(_, us)| format!("{us:.0}")).collect();
    Some(Bar { label: scenario.name.clone(), parts, spread: sum, figure: figures.join(" + ") })
}

fn failed_open(open_loop: &[Measured]) -> String {
    let kota = |rate| open_loop.iter().find(|scenario| scenario.name == open_loop_name("exact_redis", rate));
    let counts = RATES.map(|rate| {
        let total: u64 =
            kota(rate).into_iter().flat_map(|found| &found.runs).map(Run::failed_open_total).sum();
        total.to_string()
    });
    format!("exact_redis failed open, all rounds: {}", counts.join(", "))
}

/// Lying bars on a scale from 0.
fn bars(svg: &mut Svg, area: Area, title: &str, bars: &[Bar]) {
    svg.text("head", Anchor::Start, (area.x, area.y - 14.0), title);
    let highest = bars.iter().map(|bar| bar.spread.max).fold(1.0, f64::max);
    let step = nice_step(highest);
    let scale = area.width / (highest * 1.22); // leaves room for the figures
    let mut at = 0.0;
    while at * scale <= area.width {
        let x = area.x + at * scale;
        svg.line("grid", (x, area.y), (x, area.y + area.height));
        svg.text("dim", Anchor::Middle, (x, area.y + area.height + 16.0), &grouped(at));
        at += step;
    }
    let row = area.height / bars.len().max(1) as f64;
    for (i, bar) in bars.iter().enumerate() {
        let middle = area.y + row * (i as f64 + 0.5);
        svg.text("", Anchor::End, (area.x - 8.0, middle + 4.0), &bar.label);
        let mut x = area.x;
        for (colour, value) in &bar.parts {
            svg.rect(&format!("f-{colour}"), x, middle - row * 0.3, value * scale, row * 0.6);
            x += value * scale;
        }
        let (low, high) = (area.x + bar.spread.min * scale, area.x + bar.spread.max * scale);
        svg.range("mark", (low, middle), (high.max(low + 0.5), middle));
        svg.text("", Anchor::Start, (high.max(x) + 10.0, middle + 4.0), &bar.figure);
    }
}

/// Medians over the rates on a logarithmic scale, a range at each.
fn points(svg: &mut Svg, area: Area, title: &str, open_loop: &[Measured], of: fn(&Run) -> f64) {
    svg.text("head", Anchor::Start, (area.x, area.y - 14.0), title);
    let at = |name: &str, rate| {
        let found = open_loop.iter().find(|scenario| scenario.name == open_loop_name(name, rate))?;
        spread(&found.runs, |run| Some(of(run)))
    };
    let all = || OPEN_LOOP.iter().flat_map(|(name, _)| RATES.iter().filter_map(|rate| at(name, *rate)));
    let low = all().map(|spread| spread.min).fold(f64::INFINITY, f64::min).clamp(1.0, 1e5) * 0.8;
    let high = all().map(|spread| spread.max).fold(low * 2.0, f64::max) * 1.2;
    let y = |value: f64| area.y + area.height * (1.0 - (value.max(low) / low).ln() / (high / low).ln());
    for tick in ticks(low, high) {
        svg.line("grid", (area.x, y(tick)), (area.x + area.width, y(tick)));
        svg.text("dim", Anchor::End, (area.x - 8.0, y(tick) + 4.0), &grouped(tick));
    }
    let column = area.width / RATES.len() as f64;
    for (i, rate) in RATES.iter().enumerate() {
        let x = area.x + column * (i as f64 + 0.5);
        svg.text(
            "dim",
            Anchor::Middle,
            (x, area.y + area.height + 18.0),
            &format!("{}/s", grouped(f64::from(*rate))),
        );
    }
    for (series, (name, _)) in OPEN_LOOP.iter().enumerate() {
        let colour = colour(name);
        let place = |i: usize| area.x + column * (i as f64 + 0.5) + (series as f64 - 1.0) * 12.0;
        let spreads: Vec<_> =
            RATES.iter().enumerate().filter_map(|(i, rate)| Some((place(i), at(name, *rate)?))).collect();
        let medians: Vec<_> = spreads.iter().map(|(x, spread)| (*x, y(spread.median))).collect();
        svg.polyline(&format!("line s-{colour}"), &medians);
        for (x, spread) in spreads {
            svg.range(&format!("bold s-{colour}"), (x, y(spread.min)), (x, y(spread.max)));
            svg.dot(&format!("f-{colour}"), (x, y(spread.median)));
        }
    }
}

fn legend(svg: &mut Svg, (mut x, y): (f64, f64), entries: &[(&'static str, &str)]) {
    for (colour, name) in entries {
        svg.rect(&format!("f-{colour}"), x, y - 10.0, 12.0, 12.0);
        svg.text("", Anchor::Start, (x + 18.0, y), name);
        x += 40.0 + name.len() as f64 * 7.0;
    }
}

/// 1, 2 or 5 times a power of ten, so that about five steps reach `highest`.
fn nice_step(highest: f64) -> f64 {
    let power = 10_f64.powf((highest / 5.0).log10().floor());
    let fits = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power * 5.0 >= highest);
    fits.unwrap_or(10.0) * power
}

/// 1, 2 and 5 times the powers of ten within the scale.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let powers = (0..7).map(|exponent| 10_f64.powi(exponent));
    let all = powers.flat_map(|power| [power, power * 2.0, power * 5.0]);
    all.filter(|tick| (low..=high).contains(tick)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bench::gateway::Chain;
    use crate::bench::measure::CpuUs;

    fn measured(name: &str, chain: Chain, rps: f64, latency_us: f64) -> Measured {
        let run = |round: u64, factor: f64| Run {
            round,
            answered: 1000,
            received: 1000,
            errors: 0,
            rps: rps * factor,
            p50_us: latency_us / factor,
            p99_us: latency_us * 9.0 / factor,
            decisions: 1000,
            allowed: 1000,
            failed_open: BTreeMap::from([("deadline".to_owned(), round)]),
            cpu_us: CpuUs {
                envoy: Some(30.0 / factor),
                sidecar: chain.is_kota().then_some(7.0),
                redis: (chain == Chain::KotaRedis).then_some(9.0),
            },
        };
        Measured { name: name.to_owned(), chain, runs: vec![run(1, 1.0), run(2, 0.7), run(3, 1.1)] }
    }

    fn machine() -> Machine {
        let text = || "x<y".to_owned();
        Machine {
            cores: 2,
            cpu: text(),
            memory_mib: 1,
            kernel: text(),
            load_at_start: 0.0,
            envoy: text(),
            redis: text(),
            wrk: text(),
            oha: text(),
            kota: "0",
        }
    }

    #[test]
    fn the_chart_shows_every_scenario_and_is_well_formed() {
        let saturated: Vec<_> =
            OPEN_LOOP.iter().map(|(name, chain)| measured(name, *chain, 25_000.0, 900.0)).collect();
        let at = |(name, chain): (&str, Chain), rate: u32| {
            measured(&open_loop_name(name, rate), chain, f64::from(rate), 400.0 + f64::from(rate) / 10.0)
        };
        let open_loop: Vec<_> =
            RATES.iter().flat_map(|rate| OPEN_LOOP.map(|scenario| at(scenario, *rate))).collect();
        let settings = Settings { seconds: 4, rounds: 3, only: Vec::new() };
        let chart = draw(&machine(), &settings, &saturated, &open_loop);
        for shown in
            ["none", "local_ratelimit", "exact_redis", "25,000", "5,000/s", "30 + 7 + 9", "6, 6, 6, 6, 6"]
        {
            assert!(
                chart.contains(&format!(">{shown}")) || chart.contains(shown),
                "{shown} is not in {chart}"
            );
        }
        assert!(!chart.contains("NaN") && !chart.contains("inf") && !chart.contains("x<y"), "{chart}");
        let empty = draw(&machine(), &settings, &[], &[]); // a partial run draws what there is
        assert!(!empty.contains("NaN") && !empty.contains("inf"), "{empty}");
    }

    #[test]
    fn steps_are_round() {
        assert_eq!(nice_step(31_000.0), 10_000.0);
        assert_eq!(nice_step(60.0), 20.0);
        assert_eq!(ticks(300.0, 6000.0), [500.0, 1000.0, 2000.0, 5000.0]);
    }
}
