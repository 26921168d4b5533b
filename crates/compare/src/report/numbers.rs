//! Numbers as people read them, and the ticks of axes.

/// A number with three significant digits: `1.23M`, `235k`, `12.3`, `0.012`.
pub(crate) fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 999.5e6 => (value / 1e9, "G"),
        size if size >= 999.5e3 => (value / 1e6, "M"),
        size if size >= 9_995.0 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        0.0 => 0,
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        size => (2.0 - size.log10().floor()).clamp(0.0, 6.0) as usize,
    };
    format!("{scaled:.digits$}{unit}")
}

/// A ratio as text: `3.4 x`.
pub(crate) fn times(ratio: f64) -> String {
    format!("{} ×", short(ratio))
}

/// An axis from the least to the greatest value, with ticks.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Axis {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) log: bool,
    pub(crate) ticks: Vec<f64>,
}

impl Axis {
    /// An axis that has all of `values`: from 0 on if it is not logarithmic, else from one round number to another.
    pub(crate) fn over(values: &[f64], log: bool) -> Self {
        let positive = values.iter().copied().filter(|&value| value > 0.0);
        let most = positive.clone().fold(f64::MIN_POSITIVE, f64::max);
        let least = positive.fold(most, f64::min);
        if log { Self::decades(least, most) } else { Self::linear(most) }
    }

    fn linear(most: f64) -> Self {
        let step = round_up(most / 5.0);
        let count = (most / step).ceil().max(1.0);
        let ticks = (0..=count as usize).map(|i| i as f64 * step).collect();
        Self { from: 0.0, to: count * step, log: false, ticks }
    }

    fn decades(least: f64, most: f64) -> Self {
        let wide = most / least > 50.0;
        let (from, to) = if wide {
            (10_f64.powf((least * 0.999).log10().floor()), 10_f64.powf(most.log10().ceil()))
        } else {
            (round_down(least * 0.95), round_up(most * 1.02))
        };
        let steps: &[f64] = if wide { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let lowest = from.log10().floor() as i32;
        let highest = to.log10().ceil() as i32;
        let decades = lowest..=highest;
        let all = decades.flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
        let inside = all.filter(|&tick| tick >= from * 0.999 && tick <= to * 1.001);
        Self { from, to, log: true, ticks: inside.collect() }
    }

    /// An axis over the sizes of a line figure, which has ticks where there are points.
    pub(crate) fn at(mut values: Vec<f64>, log: bool) -> Self {
        values.sort_by(f64::total_cmp);
        values.dedup();
        let (from, to) =
            (values.first().copied().unwrap_or(0.0), values.last().copied().unwrap_or(1.0));
        // A single value is in the middle.
        let (from, to) = match (from < to, log) {
            (true, _) => (from, to),
            (false, true) => (from / 2.0, from * 2.0),
            (false, false) => (from - 1.0, from + 1.0),
        };
        Self { from, to, log, ticks: values }
    }

    /// Where `value` lies, from 0 to 1.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let of = |value: f64| if self.log { value.max(f64::MIN_POSITIVE).log10() } else { value };
        ((of(value) - of(self.from)) / (of(self.to) - of(self.from))).clamp(0.0, 1.0)
    }
}

/// The least of 1, 2 and 5 with any power of ten that is not below `value`.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= value * 0.9999);
    step.unwrap_or(10.0) * power
}

/// The greatest of them that is not above it.
fn round_down(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let step = [5.0, 2.0, 1.0].into_iter().find(|step| step * power <= value * 1.0001);
    step.unwrap_or(1.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        let texts =
            [0.0, 0.01234, 0.5, 1.0, 12.34, 999.0, 4321.0, 43_210.0, 999_900.0, 4.07e6, 2.5e9];
        let texts = texts.map(short);
        let expected = [
            "0", "0.0123", "0.500", "1.00", "12.3", "999", "4321", "43.2k", "1.00M", "4.07M",
            "2.50G",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn axes_have_all_values_between_round_numbers() {
        let axis = Axis::over(&[3.0, 47.0], false);
        assert_eq!((axis.from, axis.to, &axis.ticks[..2]), (0.0, 50.0, &[0.0, 10.0][..]));
        let axis = Axis::over(&[190_000.0, 4_000_000.0], true);
        assert!(
            axis.from <= 190_000.0 && axis.to >= 4_000_000.0 && axis.ticks.len() > 2,
            "{axis:?}"
        );
        let axis = Axis::over(&[20.0, 9_000_000.0], true);
        assert_eq!((axis.from, axis.to), (10.0, 1e7));
        for value in [20.0, 1e4, 9e6] {
            assert!((0.0..=1.0).contains(&axis.place(value)));
        }
        assert_eq!(Axis::over(&[], true).place(0.0), 0.0);
        let one = Axis::at(vec![5.0], false);
        assert_eq!(one.place(5.0), 0.5);
    }
}
