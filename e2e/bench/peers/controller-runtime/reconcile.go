package main

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	manager        = "one-child"
	managedByLabel = "app.kubernetes.io/managed-by"
)

// oneChild keeps one ConfigMap per ChecksumSchedule, and says so in the status.
type oneChild struct {
	client.Client
}

// Reconcile makes one pass. Both reads are from the cache; what is as it should be is not written.
func (r *oneChild) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var parent ChecksumSchedule
	if err := r.Get(ctx, request.NamespacedName, &parent); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !parent.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	if err := r.act(ctx, &parent); err != nil {
		return ctrl.Result{}, fmt.Errorf("failed to apply the config map: %w", err)
	}
	return ctrl.Result{}, r.report(ctx, &parent)
}

func (r *oneChild) act(ctx context.Context, parent *ChecksumSchedule) error {
	wanted := content(parent)
	var child corev1.ConfigMap
	err := r.Get(ctx, client.ObjectKeyFromObject(parent), &child)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil && metav1.IsControlledBy(&child, parent) && maps.Equal(child.Data, wanted) {
		return nil
	}
	owner := metav1.NewControllerRef(parent, groupVersion.WithKind("ChecksumSchedule"))
	apply := coreapply.ConfigMap(parent.Name, parent.Namespace).
		WithLabels(map[string]string{managedByLabel: manager}).
		WithOwnerReferences(metaapply.OwnerReference().
			WithAPIVersion(owner.APIVersion).WithKind(owner.Kind).WithName(owner.Name).WithUID(owner.UID).
			WithController(true).WithBlockOwnerDeletion(true)).
		WithData(wanted)
	return r.Apply(ctx, apply, client.FieldOwner(manager), client.ForceOwnership)
}

func (r *oneChild) report(ctx context.Context, parent *ChecksumSchedule) error {
	status := &parent.Status
	changed := status.ObservedGeneration != parent.Generation
	status.ObservedGeneration = parent.Generation
	changed = meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type:               "Ready",
		Status:             metav1.ConditionTrue,
		Reason:             "Applied",
		Message:            fmt.Sprintf("The config map holds the schedule %s.", parent.Spec.Schedule),
		ObservedGeneration: parent.Generation,
	}) || changed
	if !changed {
		return nil
	}
	return r.Status().Update(ctx, parent)
}

// content is what the child is to hold.
func content(parent *ChecksumSchedule) map[string]string {
	return map[string]string{
		"schedule":  parent.Spec.Schedule,
		"timeZone":  parent.Spec.TimeZone,
		"claimName": parent.Spec.Template.Spec.Source.PersistentVolumeClaim.ClaimName,
	}
}
