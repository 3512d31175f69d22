{{/* The name of everything: the release's own if that names us already. */}}
{{- define "orrery.name" -}}
{{- if contains "orrery" .Release.Name -}}
{{- printf "%s-operator" (.Release.Name | trunc 46 | trimSuffix "-") -}}
{{- else -}}
{{- printf "%s-orrery-operator" (.Release.Name | trunc 39 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "orrery.selector" -}}
app.kubernetes.io/name: orrery-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "orrery.labels" -}}
{{ include "orrery.selector" . }}
app.kubernetes.io/part-of: orrery
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Name, namespace and labels of an object in the release's namespace. */}}
{{- define "orrery.metadata" -}}
name: {{ include "orrery.name" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "orrery.labels" . | nindent 2 }}
{{- end -}}

{{- define "orrery.serviceAccount" -}}
{{- if or .Values.serviceAccount.name .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "orrery.name" .) -}}
{{- else -}}
{{- fail "serviceAccount.name is missing: with serviceAccount.create=false it names the account to use" -}}
{{- end -}}
{{- end -}}

{{- define "orrery.image" -}}
{{- $image := .Values.image -}}
{{- if not $image.repository -}}
{{- fail "image.repository is missing: push the image to a registry and name it, e.g. --set image.repository=registry.example.com/orrery" -}}
{{- end -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}
