//! What Prometheus 3 knows by name: aggregations and functions, with what they take and give.
//! An unknown function is only a warning: a later server may have it.

use super::Type;

pub(super) const AGGREGATIONS: [&str; 14] = [
    "sum",
    "avg",
    "count",
    "min",
    "max",
    "group",
    "stddev",
    "stdvar",
    "topk",
    "bottomk",
    "count_values",
    "quantile",
    "limitk",
    "limit_ratio",
];

pub(super) struct Signature {
    takes: &'static [Type],
    /// How many of them, from the end, may be left out; or the last may be repeated.
    optional: Optional,
    pub(super) gives: Type,
}

#[derive(Clone, Copy)]
enum Optional {
    Last(usize),
    Repeated,
}

impl Signature {
    /// Least and most arguments.
    pub(super) fn count(&self) -> (usize, usize) {
        match self.optional {
            Optional::Last(count) => (self.takes.len() - count, self.takes.len()),
            Optional::Repeated => (self.takes.len() - 1, usize::MAX),
        }
    }

    pub(super) fn argument(&self, index: usize) -> Type {
        let last = self.takes.last();
        *self.takes.get(index).or(last).unwrap_or(&Type::Any)
    }
}

const RANGE: &[Type] = &[Type::Range];
const VECTOR: &[Type] = &[Type::Vector];

pub(super) fn signature(name: &str) -> Option<Signature> {
    use Optional::{Last, Repeated};
    use Type::{Range, Scalar, Text, Vector};
    let (takes, optional, gives): (&'static [Type], Optional, Type) = match name {
        "rate"
        | "irate"
        | "increase"
        | "delta"
        | "idelta"
        | "deriv"
        | "changes"
        | "resets"
        | "avg_over_time"
        | "min_over_time"
        | "max_over_time"
        | "sum_over_time"
        | "count_over_time"
        | "last_over_time"
        | "first_over_time"
        | "present_over_time"
        | "absent_over_time"
        | "stddev_over_time"
        | "stdvar_over_time"
        | "mad_over_time"
        | "ts_of_min_over_time"
        | "ts_of_max_over_time"
        | "ts_of_last_over_time"
        | "ts_of_first_over_time" => (RANGE, Last(0), Vector),
        "quantile_over_time" => (&[Scalar, Range], Last(0), Vector),
        "predict_linear" => (&[Range, Scalar], Last(0), Vector),
        "holt_winters" | "double_exponential_smoothing" => {
            (&[Range, Scalar, Scalar], Last(0), Vector)
        }
        "abs" | "absent" | "ceil" | "exp" | "floor" | "ln" | "log2" | "log10" | "sqrt" | "sgn"
        | "sort" | "sort_desc" | "timestamp" | "acos" | "acosh" | "asin" | "asinh" | "atan"
        | "atanh" | "cos" | "cosh" | "deg" | "rad" | "sin" | "sinh" | "tan" | "tanh"
        | "histogram_avg" | "histogram_count" | "histogram_sum" | "histogram_stddev"
        | "histogram_stdvar" => (VECTOR, Last(0), Vector),
        "scalar" => (VECTOR, Last(0), Scalar),
        "vector" => (&[Scalar], Last(0), Vector),
        "time" | "pi" => (&[], Last(0), Scalar),
        "minute" | "hour" | "day_of_week" | "day_of_month" | "day_of_year" | "days_in_month"
        | "month" | "year" => (VECTOR, Last(1), Vector),
        "round" => (&[Vector, Scalar], Last(1), Vector),
        "clamp" => (&[Vector, Scalar, Scalar], Last(0), Vector),
        "clamp_min" | "clamp_max" => (&[Vector, Scalar], Last(0), Vector),
        "histogram_quantile" => (&[Scalar, Vector], Last(0), Vector),
        "histogram_fraction" => (&[Scalar, Scalar, Vector], Last(0), Vector),
        "label_replace" => (&[Vector, Text, Text, Text, Text], Last(0), Vector),
        "label_join" => (&[Vector, Text, Text, Text], Repeated, Vector),
        "sort_by_label" | "sort_by_label_desc" => (&[Vector, Text], Repeated, Vector),
        "info" => (&[Vector, Vector], Last(1), Vector),
        _ => return None,
    };
    Some(Signature {
        takes,
        optional,
        gives,
    })
}
