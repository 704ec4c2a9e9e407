//! `elasti complete`, which shells call: the names of services and namespaces, and the words of `kubectl elasti`.

use clap::{Args, Command, ValueEnum};
use elasti_api::ElastiService;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use crate::access::{Access, block_on};
use crate::output::print;
use elasti_runtime::exit::Failed;

/// Names offered at most: more than a screen holds.
const MOST: u32 = 500;
/// What cobra, and so kubectl, takes for: these are all, do not add file names.
const NO_FILES: &str = ":4\n";

/// Prints names for the completion of a shell; without a cluster, none.
#[derive(Args, Debug)]
#[command(hide = true)]
pub struct Complete {
    /// What to print
    #[arg(value_enum)]
    what: What,
    #[command(flatten)]
    access: Access,
    /// The words that are typed, the last one as far as it is
    #[arg(last = true)]
    words: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    Services,
    Namespaces,
    Kubectl,
}

impl Complete {
    pub(crate) fn run(mut self, cli: &Command) -> Result<(), Failed> {
        if let Some(typed) = namespace_in(&self.words) {
            self.access.namespace = Some(typed);
        }
        // A shell shows nothing but names: what goes wrong is an empty list.
        let names = |what| block_on(names(&self.access, what)).unwrap_or_default();
        let lines = match self.what {
            What::Kubectl => match wanted(cli, &self.words) {
                Wanted::Names(what) => names(what),
                Wanted::Words(words) => words,
            },
            what => names(what),
        };
        let typed = self.words.last().map_or("", String::as_str);
        let fitting = lines.iter().filter(|one| one.starts_with(typed));
        let mut text: String = fitting.map(|one| format!("{one}\n")).collect();
        if self.what == What::Kubectl {
            text.push_str(NO_FILES);
        }
        print(&text)
    }
}

async fn names(access: &Access, what: What) -> Result<Vec<String>, Failed> {
    let cluster = access.connect().await?;
    let params = ListParams::default().limit(MOST);
    if what == What::Namespaces {
        let namespaces: Api<Namespace> = Api::all(cluster.client);
        let listed = namespaces.list_metadata(&params).await?;
        return Ok(listed.items.iter().map(|one| one.name_any()).collect());
    }
    let services: Api<ElastiService> = cluster.services_in(&cluster.namespace);
    let listed = services.list_metadata(&params).await?;
    Ok(listed.items.iter().map(|one| one.name_any()).collect())
}

/// The namespace that was typed before the last word.
fn namespace_in(words: &[String]) -> Option<String> {
    let pairs = words.iter().zip(words.iter().skip(1));
    let parted = { pairs }
        .filter(|(option, _)| *option == "-n" || *option == "--namespace")
        .map(|(_, name)| name.as_str());
    let joined = words
        .iter()
        .filter_map(|word| word.strip_prefix("--namespace="));
    let mut names = parted.chain(joined).filter(|name| !name.is_empty());
    names.next().map(str::to_owned)
}

/// What may stand where the last word is.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Names(What),
    Words(Vec<String>),
}

fn wanted(cli: &Command, words: &[String]) -> Wanted {
    let (typed, before) = words
        .split_last()
        .map_or(("", words), |(last, before)| (last.as_str(), before));
    if before
        .last()
        .is_some_and(|one| one == "-n" || one == "--namespace")
    {
        return Wanted::Names(What::Namespaces);
    }
    let visible = |command: &&Command| !command.is_hide_set();
    let Some(first) = before.first() else {
        let commands = cli.get_subcommands().filter(visible);
        return Wanted::Words(commands.map(|one| one.get_name().to_owned()).collect());
    };
    let Some(command) = cli.find_subcommand(first) else {
        return Wanted::Words(Vec::new());
    };
    if typed.starts_with('-') {
        let options = command.get_arguments().filter_map(clap::Arg::get_long);
        return Wanted::Words(options.map(|one| format!("--{one}")).collect());
    }
    let takes_name = |one: &clap::Arg| {
        let names = one.get_value_names().unwrap_or_default();
        one.is_positional() && names.iter().any(|name| name.as_str() == "NAME")
    };
    match command.get_arguments().any(takes_name) {
        true => Wanted::Names(What::Services),
        false => Wanted::Words(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::{Wanted, What, namespace_in, wanted};

    #[test]
    fn a_namespace_that_is_typed_before_is_found() {
        for (line, found) in [
            ("why -n shop ", Some("shop")),
            ("elasti why --namespace shop w", Some("shop")),
            ("why --namespace=shop w", Some("shop")),
            ("why w", None),
            ("why -n ", None),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(namespace_in(&words).as_deref(), found, "{line}");
        }
    }

    #[test]
    fn names_commands_and_options_are_completed_where_they_stand() {
        let why = Command::new("why")
            .arg(Arg::new("name").value_name("NAME"))
            .arg(Arg::new("namespace").long("namespace"));
        let cli = Command::new("elasti")
            .subcommand(why)
            .subcommand(Command::new("crd"))
            .subcommand(Command::new("complete").hide(true));
        let asked = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            wanted(&cli, &words)
        };
        let words = |words: &[&str]| Wanted::Words(words.iter().map(|&w| w.to_owned()).collect());
        assert_eq!(asked(&["w"]), words(&["why", "crd"]));
        assert_eq!(asked(&["why", ""]), Wanted::Names(What::Services));
        assert_eq!(
            asked(&["why", "web", "-n", ""]),
            Wanted::Names(What::Namespaces)
        );
        assert_eq!(asked(&["why", "--n"]), words(&["--namespace"]));
        assert_eq!(asked(&["crd", ""]), words(&[]));
    }
}
