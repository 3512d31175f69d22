package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The types of config/crd/checksumschedules.yaml, with every field that the benchmark's objects have. Optional
// fields that they do not have are left out: they would only be nil.

// ChecksumSchedule is the parent.
type ChecksumSchedule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ChecksumScheduleSpec   `json:"spec"`
	Status ChecksumScheduleStatus `json:"status,omitempty"`
}

// ChecksumScheduleSpec says when to run and what.
type ChecksumScheduleSpec struct {
	Schedule                   string      `json:"schedule"`
	TimeZone                   string      `json:"timeZone,omitempty"`
	ConcurrencyPolicy          string      `json:"concurrencyPolicy,omitempty"`
	Suspend                    bool        `json:"suspend,omitempty"`
	SuccessfulRunsHistoryLimit int32       `json:"successfulRunsHistoryLimit"`
	FailedRunsHistoryLimit     int32       `json:"failedRunsHistoryLimit"`
	Template                   RunTemplate `json:"template"`
}

// RunTemplate is what runs are made from.
type RunTemplate struct {
	Spec ChecksumRunSpec `json:"spec"`
}

// ChecksumRunSpec says what to read and how.
type ChecksumRunSpec struct {
	Source                Source  `json:"source"`
	Mode                  string  `json:"mode,omitempty"`
	Algorithm             string  `json:"algorithm,omitempty"`
	Workers               Workers `json:"workers,omitzero"`
	Tuning                Tuning  `json:"tuning,omitzero"`
	DeletionGuardPercent  int32   `json:"deletionGuardPercent"`
	Suspend               bool    `json:"suspend,omitempty"`
	KeepSnapshotOnFailure bool    `json:"keepSnapshotOnFailure,omitempty"`
}

// Source says which files.
type Source struct {
	PersistentVolumeClaim ClaimSource `json:"persistentVolumeClaim"`
}

// ClaimSource names a claim.
type ClaimSource struct {
	ClaimName string `json:"claimName"`
}

// Workers says who reads.
type Workers struct {
	Replicas int32 `json:"replicas"`
}

// Tuning has the sizes of the machinery.
type Tuning struct {
	PackSize             string `json:"packSize,omitempty"`
	PackFiles            int32  `json:"packFiles,omitempty"`
	SyncConcurrency      int32  `json:"syncConcurrency,omitempty"`
	SyncChunkRows        int32  `json:"syncChunkRows,omitempty"`
	WriteBackConcurrency int32  `json:"writeBackConcurrency,omitempty"`
	WriteBackBatch       int32  `json:"writeBackBatch,omitempty"`
	BypassCache          bool   `json:"bypassCache"`
	SpillSize            string `json:"spillSize,omitempty"`
}

// ChecksumScheduleStatus says what the controller did.
type ChecksumScheduleStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	ActiveCount        int32              `json:"activeCount"`
}

// ChecksumScheduleList is a page of parents.
type ChecksumScheduleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ChecksumSchedule `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (in *ChecksumSchedule) DeepCopyObject() runtime.Object {
	out := new(ChecksumSchedule)
	in.deepCopyInto(out)
	return out
}

// DeepCopyObject implements runtime.Object.
func (in *ChecksumScheduleList) DeepCopyObject() runtime.Object {
	out := &ChecksumScheduleList{TypeMeta: in.TypeMeta, Items: make([]ChecksumSchedule, len(in.Items))}
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range in.Items {
		in.Items[i].deepCopyInto(&out.Items[i])
	}
	return out
}

// The spec has no pointers, so it is copied with the struct.
func (in *ChecksumSchedule) deepCopyInto(out *ChecksumSchedule) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if in.Status.Conditions == nil {
		return
	}
	out.Status.Conditions = make([]metav1.Condition, len(in.Status.Conditions))
	for i := range in.Status.Conditions {
		in.Status.Conditions[i].DeepCopyInto(&out.Status.Conditions[i])
	}
}

var groupVersion = schema.GroupVersion{Group: "orrery.dev", Version: "v1alpha1"}

func addToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(groupVersion, &ChecksumSchedule{}, &ChecksumScheduleList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	return nil
}
