//! The whole simulated cluster at work: workloads, endpoints, traffic, probes, the kubelet's tick, garbage and namespaces.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::fixture::{
    ApiClient, DEPLOYMENTS, MERGE, PODS, STRATEGIC, a_fake_cluster, a_service, deployment, items,
    until,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

async fn ready_endpoints(api_client: &ApiClient) -> usize {
    let slices = items(api_client, SLICES).await;
    let endpoints = slices
        .iter()
        .flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
    endpoints
        .filter(|one| one["conditions"]["ready"] == true)
        .count()
}

/// The pod that answers, or the error.
async fn ask(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(b"GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
    let body: Value = serde_json::from_str(body).map_err(std::io::Error::other)?;
    Ok(body["pod"].as_str().unwrap_or_default().to_owned())
}

fn probed(name: &str, replicas: i64) -> Value {
    let mut object = deployment(name, replicas);
    object["spec"]["template"]["spec"]["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1});
    object
}

#[tokio::test(start_paused = true)]
async fn a_deployment_goes_from_0_to_3_to_0_and_traffic_follows_its_endpoints() {
    let (_fake_cluster, api_client) = a_fake_cluster().await;
    let address = a_service(&api_client, "web").await;
    api_client.make(DEPLOYMENTS, probed("web", 0)).await;
    until("an empty slice", async || {
        items(&api_client, SLICES).await.len() == 1
    })
    .await;
    assert!(ask(&address).await.is_err(), "refused without endpoints");

    let scale = |replicas: i64| json!({"spec": {"replicas": replicas}});
    api_client
        .patch(&format!("{DEPLOYMENTS}/web/scale"), MERGE, scale(3))
        .await;
    until("three ready endpoints", async || {
        ready_endpoints(&api_client).await == 3
    })
    .await;
    until("the cluster address answers", async || {
        ask(&address).await.is_ok()
    })
    .await;
    let mut pods = BTreeSet::new();
    for _ in 0..60 {
        pods.insert(ask(&address).await.unwrap());
    }
    assert_eq!(pods.len(), 3, "traffic is spread");
    until("the deployment says so", async || {
        api_client.get(&format!("{DEPLOYMENTS}/web")).await.1["status"]["availableReplicas"] == 3
    })
    .await;
    let slice = &items(&api_client, SLICES).await[0];
    assert_eq!(
        slice["metadata"]["labels"]["kubernetes.io/service-name"],
        "web"
    );
    assert_eq!(
        slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"],
        "endpointslice-controller.k8s.io"
    );
    assert_eq!(
        slice["ports"],
        json!([{"name": "http", "port": 8080, "protocol": "TCP", "appProtocol": "http"}])
    );
    assert_eq!(slice["endpoints"][0]["targetRef"]["kind"], "Pod");

    api_client
        .patch(&format!("{DEPLOYMENTS}/web/scale"), MERGE, scale(0))
        .await;
    until("no pod is left", async || {
        items(&api_client, PODS).await.is_empty()
    })
    .await;
    until("connections are refused", async || {
        ask(&address).await.is_err()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_mark_takes_the_endpoint_out_until_the_kubelets_next_tick() {
    let (_fake_cluster, api_client) = a_fake_cluster().await;
    let address = a_service(&api_client, "web").await;
    api_client.make(DEPLOYMENTS, probed("web", 1)).await;
    until("a ready endpoint", async || {
        ready_endpoints(&api_client).await == 1
    })
    .await;
    until("the address answers", async || ask(&address).await.is_ok()).await;
    let mut open = TcpStream::connect(&address).await.unwrap();
    let pod = items(&api_client, PODS).await[0]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let mark = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Draining"}]}});
    let (code, _) = api_client
        .patch(&format!("{PODS}/{pod}/status"), STRATEGIC, mark)
        .await;
    assert_eq!(code, 200);
    let marked = Instant::now();
    until("the endpoint is out", async || {
        ready_endpoints(&api_client).await == 0
    })
    .await;
    assert!(marked.elapsed() < Duration::from_secs(1));
    until("connections are refused", async || {
        ask(&address).await.is_err()
    })
    .await;
    // What is open stays open: only new connections follow the endpoints.
    open.write_all(b"GET /late HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut late = String::new();
    open.read_to_string(&mut late).await.unwrap();
    assert!(late.starts_with("HTTP/1.1 200"), "{late}");
    until("the tick restores it", async || {
        ready_endpoints(&api_client).await == 1
    })
    .await;
    assert!(
        marked.elapsed() <= Duration::from_millis(10_100),
        "{:?}",
        marked.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_readiness_gate_keeps_a_pod_out_of_rotation_whatever_its_containers_say() {
    let (_fake_cluster, api_client) = a_fake_cluster().await;
    a_service(&api_client, "web").await;
    let mut object = probed("web", 1);
    object["spec"]["template"]["spec"]["readinessGates"] =
        json!([{"conditionType": "lb.example/attached"}]);
    api_client.make(DEPLOYMENTS, object).await;
    let condition = async |type_: &str| {
        let pods = items(&api_client, PODS).await;
        let conditions = pods.first().map(|pod| pod["status"]["conditions"].clone());
        let conditions = conditions.unwrap_or_default();
        let mut all = conditions.as_array().into_iter().flatten();
        let found = all.find(|one| one["type"] == type_);
        found.map_or(Value::Null, |one| one["status"].clone())
    };
    until("its containers are ready", async || {
        condition("ContainersReady").await == "True"
    })
    .await;
    assert_eq!(condition("Ready").await, "False");
    let pod = items(&api_client, PODS).await.remove(0);
    let path = format!(
        "{PODS}/{}/status",
        pod["metadata"]["name"].as_str().unwrap()
    );
    let gate = |status: &str| json!({"status": {"conditions": [{"type": "lb.example/attached", "status": status}]}});
    api_client.patch(&path, STRATEGIC, gate("True")).await;
    until("it is in rotation", async || {
        ready_endpoints(&api_client).await == 1
    })
    .await;
    sleep(Duration::from_secs(21)).await;
    assert_eq!(
        condition("lb.example/attached").await,
        "True",
        "ticks leave it"
    );
    api_client.patch(&path, STRATEGIC, gate("False")).await;
    until("it is out again", async || {
        ready_endpoints(&api_client).await == 0
    })
    .await;
    assert_eq!(condition("ContainersReady").await, "True");
}

#[tokio::test(start_paused = true)]
async fn pods_that_cannot_start_say_why() {
    let (_fake_cluster, api_client) = a_fake_cluster().await;
    for (name, image) in [
        ("missing", "missing:1"),
        ("crash", "crash-loop:1"),
        ("deaf", "never-ready:1"),
        ("slow", "slow-start:1"),
    ] {
        let mut object = probed(name, 1);
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        api_client.make(DEPLOYMENTS, object).await;
    }
    let waiting = async |name: &str| {
        let pod = items(&api_client, &format!("{PODS}?labelSelector=app%3D{name}"))
            .await
            .pop()
            .unwrap_or_default();
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    until("the image cannot be pulled", async || {
        waiting("missing").await == "ImagePullBackOff"
    })
    .await;
    until("it crashes again and again", async || {
        waiting("crash").await == "CrashLoopBackOff"
    })
    .await;
    until("the slow one is ready", async || {
        api_client.get(&format!("{DEPLOYMENTS}/slow")).await.1["status"]["readyReplicas"] == 1
    })
    .await;
    let deaf = api_client.get(&format!("{DEPLOYMENTS}/deaf")).await.1;
    assert!(deaf["status"].get("readyReplicas").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_rolling_update_keeps_enough_pods_available() {
    let (_fake_cluster, api_client) = a_fake_cluster().await;
    api_client.make(DEPLOYMENTS, probed("web", 4)).await;
    let path = format!("{DEPLOYMENTS}/web");
    until("all are available", async || {
        api_client.get(&path).await.1["status"]["availableReplicas"] == 4
    })
    .await;
    api_client.patch(&path, STRATEGIC, json!({"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "echo:2"}]}}}})).await;
    until("the rollout is complete", async || {
        let object = api_client.get(&path).await.1;
        let status = &object["status"];
        assert!(
            status["availableReplicas"].as_i64().unwrap_or(0) >= 3,
            "{status}"
        );
        assert!(status["replicas"].as_i64().unwrap_or(0) <= 5, "{status}");
        status["observedGeneration"] == 2
            && status["updatedReplicas"] == 4
            && status["replicas"] == 4
            && status["availableReplicas"] == 4
    })
    .await;
    let images: BTreeSet<String> = items(&api_client, PODS)
        .await
        .iter()
        .map(|pod| {
            pod["spec"]["containers"][0]["image"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    until("the old pods are gone", async || {
        items(&api_client, PODS).await.len() == 4
    })
    .await;
    assert!(images.contains("echo:2"));
    assert_eq!(
        api_client.get(&path).await.1["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "2"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_starts_in_order_and_stops_in_reverse() {
    let (_fake_cluster, api_client) = a_fake_cluster().await;
    let sets = "/apis/apps/v1/namespaces/default/statefulsets";
    let mut object = probed("db", 3);
    object["kind"] = json!("StatefulSet");
    object["spec"]["serviceName"] = json!("db");
    api_client.make(sets, object).await;
    until("three are ready", async || {
        let pods = items(&api_client, PODS).await;
        let names: Vec<&str> = pods
            .iter()
            .map(|pod| pod["metadata"]["name"].as_str().unwrap())
            .collect();
        assert!(
            [&["db-0", "db-1", "db-2"][..names.len()]].contains(&&names[..]),
            "{names:?}"
        );
        api_client.get(&format!("{sets}/db")).await.1["status"]["readyReplicas"] == 3
    })
    .await;
    api_client
        .patch(
            &format!("{sets}/db"),
            MERGE,
            json!({"spec": {"replicas": 1}}),
        )
        .await;
    until("one is left", async || {
        items(&api_client, PODS).await.len() == 1
    })
    .await;
    assert_eq!(
        items(&api_client, PODS).await[0]["metadata"]["name"],
        "db-0"
    );
}

fn unready() -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Test"}]}})
}

#[tokio::test(start_paused = true)]
async fn an_ordered_stateful_set_deletes_no_unready_pod_above_another_until_that_is_ready() {
    let (_fake_cluster, api_client) = a_fake_cluster().await;
    let sets = "/apis/apps/v1/namespaces/default/statefulsets";
    let mut object = probed("db", 3);
    object["kind"] = json!("StatefulSet");
    object["spec"]["serviceName"] = json!("db");
    api_client.make(sets, object).await;
    until("three are ready", async || {
        api_client.get(&format!("{sets}/db")).await.1["status"]["readyReplicas"] == 3
    })
    .await;
    for pod in ["db-0", "db-1", "db-2"] {
        let path = format!("{PODS}/{pod}/status");
        api_client.patch(&path, STRATEGIC, unready()).await;
    }
    let zero = json!({"spec": {"replicas": 0}});
    api_client.patch(&format!("{sets}/db"), MERGE, zero).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let going = async || {
        let pods = items(&api_client, PODS).await;
        let going = pods
            .iter()
            .filter(|pod| pod["metadata"]["deletionTimestamp"].is_string());
        going.count()
    };
    assert_eq!(
        going().await,
        0,
        "the highest waits for the lowest that is not ready"
    );
    until(
        "the kubelets' ticks have put them back, and all are gone",
        async || items(&api_client, PODS).await.is_empty(),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_ordered_stateful_set_deletes_no_pod_until_every_lower_one_has_been_ready_for_long_enough()
 {
    let (_fake_cluster, api_client) = a_fake_cluster().await;
    let sets = "/apis/apps/v1/namespaces/default/statefulsets";
    let mut object = probed("db", 3);
    object["kind"] = json!("StatefulSet");
    object["spec"]["serviceName"] = json!("db");
    object["spec"]["minReadySeconds"] = json!(30);
    let began = Instant::now();
    api_client.make(sets, object).await;
    let status = async || api_client.get(&format!("{sets}/db")).await.1["status"].clone();
    until("three are ready", async || {
        status().await["readyReplicas"] == 3
    })
    .await;
    let took = began.elapsed().as_secs();
    assert!(
        (58..70).contains(&took),
        "each waits for the lower: {took} s"
    );
    until("three are available", async || {
        status().await["availableReplicas"] == 3
    })
    .await;

    let uid = async || api_client.get(&format!("{PODS}/db-0")).await.1["metadata"]["uid"].clone();
    let old = uid().await;
    api_client.delete(&format!("{PODS}/db-0")).await;
    until("the lowest is ready again", async || {
        let (code, pod) = api_client.get(&format!("{PODS}/db-0")).await;
        let renewed = code == 200 && pod["metadata"]["uid"] != old;
        renewed && status().await["readyReplicas"] == 3
    })
    .await;
    let ready_at = Instant::now();
    api_client
        .patch(&format!("{PODS}/db-2/status"), STRATEGIC, unready())
        .await;
    let two = json!({"spec": {"replicas": 2}});
    api_client.patch(&format!("{sets}/db"), MERGE, two).await;
    until("the highest is gone", async || {
        api_client.get(&format!("{PODS}/db-2")).await.0 == 404
    })
    .await;
    let waited = ready_at.elapsed().as_secs();
    assert!((28..34).contains(&waited), "{waited} s");
}

#[tokio::test(start_paused = true)]
async fn a_replica_set_deletes_pods_that_are_not_ready_first_then_those_of_the_lower_cost() {
    let (_fake_cluster, api_client) = a_fake_cluster().await;
    api_client.make(DEPLOYMENTS, probed("web", 3)).await;
    until("three are ready", async || {
        api_client.get(&format!("{DEPLOYMENTS}/web")).await.1["status"]["readyReplicas"] == 3
    })
    .await;
    let names = async || -> Vec<String> {
        let pods = items(&api_client, PODS).await;
        let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
        pods.iter().map(name).collect()
    };
    let all = names().await;
    let cost =
        json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}}});
    let pod = |name: &str| format!("{PODS}/{name}");
    api_client.patch(&pod(&all[1]), MERGE, cost).await;
    let path = format!("{}/status", pod(&all[2]));
    api_client.patch(&path, STRATEGIC, unready()).await;
    for (replicas, left) in [(2, &all[..2]), (1, &all[..1])] {
        let scale = json!({"spec": {"replicas": replicas}});
        let path = format!("{DEPLOYMENTS}/web");
        api_client.patch(&path, MERGE, scale).await;
        until("it has shrunk", async || names().await.len() == left.len()).await;
        assert_eq!(names().await, left);
    }
}

#[tokio::test(start_paused = true)]
async fn owners_take_their_dependents_with_them() {
    let (_fake_cluster, api_client) = a_fake_cluster().await;
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    for (name, policy) in [
        ("back", "Background"),
        ("fore", "Foreground"),
        ("orphan", "Orphan"),
    ] {
        api_client.make(DEPLOYMENTS, deployment(name, 1)).await;
        let of = format!("{sets}?labelSelector=app%3D{name}");
        until("a replica set", async || {
            items(&api_client, &of).await.len() == 1
        })
        .await;
        until("it is observed", async || {
            api_client.get(&format!("{DEPLOYMENTS}/{name}")).await.1["status"]["readyReplicas"] == 1
        })
        .await;
        api_client
            .send(
                "DELETE",
                &format!("{DEPLOYMENTS}/{name}"),
                "application/json",
                json!({"propagationPolicy": policy}).to_string(),
            )
            .await;
        until("the deployment is gone", async || {
            api_client.get(&format!("{DEPLOYMENTS}/{name}")).await.0 == 404
        })
        .await;
        if policy == "Orphan" {
            let orphans = items(&api_client, &of).await;
            assert!(orphans[0]["metadata"].get("ownerReferences").is_none());
        } else {
            until("its pods are gone", async || {
                items(&api_client, &format!("{PODS}?labelSelector=app%3D{name}"))
                    .await
                    .is_empty()
            })
            .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_emptied_and_then_gone() {
    let (_fake_cluster, api_client) = a_fake_cluster().await;
    api_client
        .make("/api/v1/namespaces", json!({"metadata": {"name": "shop"}}))
        .await;
    until("its service account", async || {
        api_client
            .get("/api/v1/namespaces/shop/serviceaccounts/default")
            .await
            .0
            == 200
    })
    .await;
    api_client
        .make(
            "/apis/apps/v1/namespaces/shop/deployments",
            deployment("web", 2),
        )
        .await;
    until("two pods", async || {
        items(&api_client, "/api/v1/namespaces/shop/pods")
            .await
            .len()
            == 2
    })
    .await;
    api_client.delete("/api/v1/namespaces/shop").await;
    until("the namespace is gone", async || {
        api_client.get("/api/v1/namespaces/shop").await.0 == 404
    })
    .await;
    assert!(items(&api_client, "/api/v1/pods").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_day_of_sleeping_and_waking_takes_seconds() {
    let (_fake_cluster, api_client) = a_fake_cluster().await;
    api_client.make(DEPLOYMENTS, probed("web", 0)).await;
    let begun = Instant::now();
    let real = std::time::Instant::now();
    for hour in 0..24 {
        api_client
            .patch(
                &format!("{DEPLOYMENTS}/web/scale"),
                MERGE,
                json!({"spec": {"replicas": 1}}),
            )
            .await;
        until("awake", async || {
            api_client.get(&format!("{DEPLOYMENTS}/web")).await.1["status"]["readyReplicas"] == 1
        })
        .await;
        sleep(Duration::from_secs(1800)).await;
        api_client
            .patch(
                &format!("{DEPLOYMENTS}/web/scale"),
                MERGE,
                json!({"spec": {"replicas": 0}}),
            )
            .await;
        until("asleep", async || items(&api_client, PODS).await.is_empty()).await;
        sleep((begun + Duration::from_secs(3600 * (hour + 1))) - Instant::now()).await;
    }
    assert!(begun.elapsed() >= Duration::from_secs(24 * 3600));
    println!("24 h took {:?}", real.elapsed());
}

#[tokio::test(start_paused = true)]
async fn endpoint_slices_and_nodes_can_be_late() {
    let (fake_cluster, api_client) = a_fake_cluster().await;
    let address = a_service(&api_client, "web").await;
    api_client.make(DEPLOYMENTS, probed("web", 1)).await;
    until("the address answers", async || ask(&address).await.is_ok()).await;
    fake_cluster
        .controllers
        .lags
        .set_endpoint_slices(Duration::from_secs(3));
    fake_cluster
        .nodes
        .iter()
        .for_each(|node| node.set_proxy_lag(Duration::from_secs(2)));
    api_client
        .patch(
            &format!("{DEPLOYMENTS}/web/scale"),
            MERGE,
            json!({"spec": {"replicas": 0}}),
        )
        .await;
    let scaled = Instant::now();
    until("the slice follows", async || {
        ready_endpoints(&api_client).await == 0
    })
    .await;
    let followed = scaled.elapsed();
    assert!(followed >= Duration::from_secs(3), "{followed:?}");
    assert!(
        TcpStream::connect(&address).await.is_ok(),
        "nodes still route to the pod that is gone"
    );
    until("the nodes follow", async || {
        TcpStream::connect(&address).await.is_err()
    })
    .await;
    assert!(scaled.elapsed() >= followed + Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_late_node_sees_every_change_in_its_order() {
    let (fake_cluster, api_client) = a_fake_cluster().await;
    let address = a_service(&api_client, "web").await;
    api_client.make(DEPLOYMENTS, probed("web", 1)).await;
    until("the address answers", async || ask(&address).await.is_ok()).await;
    fake_cluster
        .nodes
        .iter()
        .for_each(|node| node.set_proxy_lag(Duration::from_secs(5)));
    let slice = items(&api_client, SLICES).await[0]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    // The slice has a gap of two seconds; each node has the same gap, five seconds later.
    fake_cluster
        .controllers
        .lags
        .set_endpoint_slices(Duration::from_secs(2));
    api_client
        .patch(
            &format!("{SLICES}/{slice}"),
            MERGE,
            json!({"endpoints": []}),
        )
        .await;
    sleep(Duration::from_secs(4)).await;
    assert_eq!(
        ready_endpoints(&api_client).await,
        1,
        "the controller has repaired the slice"
    );
    assert!(
        TcpStream::connect(&address).await.is_ok(),
        "no node has seen the gap yet"
    );
    sleep(Duration::from_millis(1_500)).await;
    assert!(
        TcpStream::connect(&address).await.is_err(),
        "now every node is in it"
    );
    sleep(Duration::from_secs(2)).await;
    assert!(TcpStream::connect(&address).await.is_ok());
}

#[tokio::test]
async fn the_prometheus_stand_in_answers_from_its_table() {
    let (fake_cluster, _) = a_fake_cluster().await;
    fake_cluster.prometheus.set(
        "rate(x[1m])",
        elasti_fake_cluster::prometheus::Reading::Value(2.5),
    );
    let ask = async |query: &str| {
        let mut stream = TcpStream::connect(fake_cluster.prometheus.address)
            .await
            .unwrap();
        stream.write_all(format!("GET /api/v1/query?query={query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        serde_json::from_str::<Value>(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
    };
    assert_eq!(
        ask("rate(x%5B1m%5D)").await["data"]["result"][0]["value"][1],
        "2.5"
    );
    assert_eq!(ask("other").await["data"]["result"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn rollouts_scale_and_keda_honours_its_pause_annotations() {
    let (fake_cluster, api_client) = a_fake_cluster().await;
    fake_cluster.install_rollouts_and_keda();
    let rollouts = "/apis/argoproj.io/v1alpha1/namespaces/default/rollouts";
    let scaled = "/apis/keda.sh/v1alpha1/namespaces/default/scaledobjects";
    let mut rollout = probed("web", 2);
    rollout["apiVersion"] = json!("argoproj.io/v1alpha1");
    rollout["kind"] = json!("Rollout");
    api_client.make(rollouts, rollout).await;
    until("two pods are ready", async || {
        api_client.get(&format!("{rollouts}/web")).await.1["status"]["readyReplicas"] == 2
    })
    .await;
    let (code, scale) = api_client.get(&format!("{rollouts}/web/scale")).await;
    assert_eq!(
        (code, &scale["status"]),
        (200, &json!({"replicas": 2, "selector": "app=web"}))
    );

    api_client.make(scaled, json!({
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": "web", "annotations": {"autoscaling.keda.sh/paused": "true"}},
        "spec": {"scaleTargetRef": {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web"}, "minReplicaCount": 1},
    })).await;
    until("it says that it is paused", async || {
        api_client.get(&format!("{scaled}/web")).await.1["status"]["conditions"][0]["status"]
            == "True"
    })
    .await;
    let annotate = |paused: Value, replicas: Value| json!({"metadata": {"annotations": {"autoscaling.keda.sh/paused": paused, "autoscaling.keda.sh/paused-replicas": replicas}}});
    api_client
        .patch(
            &format!("{scaled}/web"),
            MERGE,
            annotate(json!("true"), json!("0")),
        )
        .await;
    until("it is held at 0", async || {
        items(&api_client, PODS).await.is_empty()
    })
    .await;
    api_client
        .patch(
            &format!("{scaled}/web"),
            MERGE,
            annotate(json!("false"), Value::Null),
        )
        .await;
    until("it is back at the minimum", async || {
        api_client.get(&format!("{rollouts}/web")).await.1["status"]["readyReplicas"] == 1
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_refuses_pods_is_told_by_the_deployment_and_by_an_event_and_passes() {
    let (_fake_cluster, api_client) = a_fake_cluster().await;
    let mut object = deployment("web", 1);
    object["spec"]["template"]["spec"]["serviceAccountName"] = json!("missing");
    api_client.make(DEPLOYMENTS, object).await;
    let failure = async || {
        let web = api_client.get(&format!("{DEPLOYMENTS}/web")).await.1;
        let conditions = web["status"]["conditions"].as_array().cloned();
        let mut conditions = conditions.unwrap_or_default().into_iter();
        conditions.find(|one| one["type"] == "ReplicaFailure")
    };
    until("the Deployment reports it", async || {
        failure().await.is_some()
    })
    .await;
    let received = failure().await.unwrap();
    assert_eq!(received["reason"], "FailedCreate");
    let message = received["message"].as_str().unwrap();
    assert!(
        message.contains("serviceaccount \"missing\" not found"),
        "{message}"
    );
    let events = items(&api_client, "/api/v1/namespaces/default/events").await;
    let event = events.iter().find(|one| one["reason"] == "FailedCreate");
    assert_eq!(event.unwrap()["involvedObject"]["kind"], "ReplicaSet");

    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    api_client
        .make(accounts, json!({"metadata": {"name": "missing"}}))
        .await;
    until("the pod comes", async || {
        items(&api_client, PODS).await.len() == 1
    })
    .await;
    until("nothing refuses it any more", async || {
        failure().await.is_none()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_cannot_start_say_why_in_their_status_and_by_events() {
    let (_fake_cluster, api_client) = a_fake_cluster().await;
    for (name, image, policy) in [
        ("pulled", "missing:1", "IfNotPresent"),
        ("local", "missing:1", "Never"),
        ("dying", "crash-loop:1", "IfNotPresent"),
    ] {
        let mut object = deployment(name, 1);
        let container = &mut object["spec"]["template"]["spec"]["containers"][0];
        container["image"] = json!(image);
        container["imagePullPolicy"] = json!(policy);
        api_client.make(DEPLOYMENTS, object).await;
    }
    let waiting = async |name: &str| {
        let pods = items(&api_client, PODS).await;
        let of_name = |pod: &&Value| pod["metadata"]["name"].as_str().unwrap().starts_with(name);
        let pod = pods.iter().find(of_name).cloned().unwrap_or_default();
        pod["status"]["containerStatuses"][0]["state"]["waiting"].clone()
    };
    for (name, reason, words) in [
        ("pulled", "ImagePullBackOff", "ErrImagePull: failed to pull"),
        (
            "local",
            "ErrImageNeverPull",
            "is not present with pull policy of Never",
        ),
        (
            "dying",
            "CrashLoopBackOff",
            "back-off 10s restarting failed container=app",
        ),
    ] {
        until(reason, async || waiting(name).await["reason"] == reason).await;
        let message = waiting(name).await["message"].clone();
        assert!(message.as_str().unwrap().contains(words), "{message}");
    }
    let events = items(&api_client, "/api/v1/namespaces/default/events").await;
    let reasons: BTreeSet<&str> = events
        .iter()
        .filter_map(|one| one["reason"].as_str())
        .collect();
    assert!(
        reasons.is_superset(&["BackOff", "ErrImageNeverPull", "Failed"].into()),
        "{reasons:?}"
    );
}
