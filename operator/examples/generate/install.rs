//! What an installation needs and another file already says: the chart's rules, alerts and dashboard,
//! the rules for Prometheus' operator, and Argo CD's settings. Reads the files that people write.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use operator::rbac;

use super::{Files, NOTICE, documents, value};

const CUSTOMIZATIONS: &str = "config/argocd/resource_customizations/orrery.dev";

/// Adds them to `files`.
pub(crate) fn files(root: &Path, files: &mut Files) -> io::Result<()> {
    chart_rules(files);
    let alerts = fs::read_to_string(root.join("config/prometheus/alerts.yaml"))?;
    let dashboard = fs::read_to_string(root.join("config/prometheus/dashboard.json"))?;
    files.insert(
        "config/prometheus/prometheus-rule.yaml".into(),
        rule(&alerts),
    );
    files.insert(
        "charts/orrery/files/alerts.yaml".into(),
        NOTICE.to_owned() + &alerts,
    );
    files.insert("charts/orrery/files/dashboard.json".into(), dashboard);
    files.insert(
        "config/argocd/argocd-cm.yaml".into(),
        argocd(&root.join(CUSTOMIZATIONS))?,
    );
    Ok(())
}

/// The rules alone: the chart's templates put names and namespaces around them.
fn chart_rules(files: &mut Files) {
    let users = rbac::user_roles().into_iter().filter_map(|role| {
        let name = role.metadata.name?;
        Some((name.trim_start_matches("orrery-").to_owned(), role.rules?))
    });
    let own = [
        ("operator".to_owned(), rbac::working_rules()),
        ("leader".to_owned(), rbac::leader_rules()),
    ];
    for (name, rules) in own.into_iter().chain(users) {
        files.insert(
            format!("charts/orrery/files/{name}-rules.yaml").into(),
            documents(&[value(&rules)]),
        );
    }
}

fn rule(alerts: &str) -> String {
    let head = "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: orrery-operator\n  \
        namespace: orrery-system\n  labels:\n    app.kubernetes.io/name: orrery-operator\n    \
        app.kubernetes.io/part-of: orrery\nspec:\n";
    format!("{NOTICE}{head}{}", indented(alerts, 2))
}

/// The scripts as keys of Argo CD's ConfigMap, to be merged into the one that is there.
fn argocd(folder: &Path) -> io::Result<String> {
    let mut text = format!(
        "{NOTICE}# A patch: kubectl -n argocd patch configmap argocd-cm --type=merge --patch-file=argocd-cm.yaml\n\
         apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: argocd-cm\ndata:\n"
    );
    for kind in sorted(folder)? {
        let key = |what| {
            format!(
                "  resource.customizations.{what}.orrery.dev_{}: |\n",
                name(&kind)
            )
        };
        let health = fs::read_to_string(kind.join("health.lua"))?;
        let discovery = fs::read_to_string(kind.join("actions/discovery.lua"))?;
        text += &(key("health") + &indented(&health, 4));
        text += &(key("actions") + "    discovery.lua: |\n" + &indented(&discovery, 6));
        text += "    definitions:\n";
        for action in sorted(&kind.join("actions"))?
            .iter()
            .filter(|path| path.is_dir())
        {
            let script = fs::read_to_string(action.join("action.lua"))?;
            text += &["    - name: ", &name(action), "\n      action.lua: |\n"].concat();
            text += &indented(&script, 8);
        }
    }
    Ok(text)
}

fn sorted(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn indented(text: &str, by: usize) -> String {
    let lines = text.lines().map(|line| match line {
        "" => "\n".to_owned(),
        line => format!("{:by$}{line}\n", ""),
    });
    lines.collect()
}
