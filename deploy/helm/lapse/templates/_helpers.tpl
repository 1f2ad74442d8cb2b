{{- define "lapse.selector" -}}
app.kubernetes.io/name: lapse
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lapse.labels" -}}
{{ include "lapse.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "lapse.name" -}}
{{- if contains "lapse" .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-lapse" .Release.Name }}{{ end }}
{{- end -}}

{{/* The number of pods, after a check of what the schema cannot check. */}}
{{- define "lapse.replicas" -}}
{{- if eq .Values.mode "embedded" -}}
{{- if ne (int (.Values.replicas | default 1)) 1 }}{{ fail "replicas: mode embedded has 1 pod; use mode cluster beside a NATS cluster for more" }}{{ end -}}
{{- if not (or .Values.embedded.config .Values.embedded.noAuth) }}{{ fail "give users in embedded.config, a Secret with nats.conf, or set embedded.noAuth to let in everybody who reaches the Service" }}{{ end -}}
1
{{- else -}}
{{- if lt (int (.Values.replicas | default 2)) 2 }}{{ fail "replicas: mode cluster has 2 pods or more; one writes, the others take over" }}{{ end -}}
{{- if not .Values.nats.url }}{{ fail "give the NATS servers in nats.url" }}{{ end -}}
{{- if not .Values.nats.secret }}{{ fail "give the Secret with nkeys or credentials in nats.secret" }}{{ end -}}
{{- .Values.replicas | default 2 -}}
{{- end -}}
{{- end -}}
