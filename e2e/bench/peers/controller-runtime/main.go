// The peer of the operator's core: one ConfigMap per ChecksumSchedule, written with controller-runtime as its
// documentation advises. src/one_child.rs is the same with our own core; keep the two equal.
package main

import (
	"flag"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

func main() {
	workers := flag.Int("workers", 1, "how many objects are reconciled at once")
	metrics := flag.String("metrics-address", "", "where metrics are served")
	probes := flag.String("health-address", "", "where health is served")
	namespace := flag.String("lease-namespace", "default", "where the lease is")
	flag.Parse() // also --kubeconfig, which controller-runtime adds
	ctrl.SetLogger(zap.New())
	if err := run(options(*workers, *metrics, *probes, *namespace)); err != nil {
		ctrl.Log.Error(err, "process failed")
		os.Exit(1)
	}
}

func options(workers int, metrics, probes, namespace string) ctrl.Options {
	ours := labels.SelectorFromSet(labels.Set{managedByLabel: manager})
	return ctrl.Options{
		Scheme:                        runtime.NewScheme(),
		Metrics:                       server.Options{BindAddress: metrics},
		HealthProbeBindAddress:        probes,
		LeaderElection:                true,
		LeaderElectionID:              manager,
		LeaderElectionNamespace:       namespace,
		LeaderElectionReleaseOnCancel: true,
		Controller:                    config.Controller{MaxConcurrentReconciles: workers},
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			// Other people's ConfigMaps are not ours to keep.
			ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Label: ours}},
		},
	}
}

func run(options ctrl.Options) error {
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, addToScheme} {
		if err := add(options.Scheme); err != nil {
			return err
		}
	}
	// As in our own client, requests are not throttled: that is GetConfig's default.
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), options)
	if err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	// The status that this controller writes itself is no reason for another pass.
	err = ctrl.NewControllerManagedBy(mgr).
		For(&ChecksumSchedule{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&corev1.ConfigMap{}).
		Complete(&oneChild{Client: mgr.GetClient()})
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
