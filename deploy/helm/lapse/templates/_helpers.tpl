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

{{/* The Secret with the certificate for clients; empty for none. */}}
{{- define "lapse.certificate" -}}
{{- with .Values.embedded.tls }}{{ .secret | default (ternary (printf "%s-tls" (include "lapse.name" $)) "" (not (empty .issuer))) }}{{ end -}}
{{- end -}}

{{/* The number of pods, after a check of what the schema cannot check. */}}
{{- define "lapse.replicas" -}}
{{- if eq .Values.mode "embedded" -}}
{{- if ne (int (.Values.replicas | default 1)) 1 }}{{ fail "replicas: mode embedded has 1 pod; use mode cluster beside a NATS cluster for more" }}{{ end -}}
{{- with .Values.embedded }}
{{- if not (or .users .config .noAuth) }}{{ fail "give users in embedded.users, or in embedded.config, a Secret with nats.conf, or set embedded.noAuth to let in everybody who reaches the Service" }}{{ end -}}
{{- if and .users (not (or .tls.secret .tls.issuer .config .noTLS)) }}{{ fail "give a certificate in embedded.tls.secret, or embedded.tls.issuer of cert-manager, or set embedded.noTLS on a network of your own" }}{{ end -}}
{{- if not .usersSecret }}{{ range $name, $password := .users }}{{ if not $password }}{{ fail (printf "embedded.users: give %s a password, or the Secret that has it in embedded.usersSecret" $name) }}{{ end }}{{ end }}{{ end -}}
{{- end -}}
1
{{- else -}}
{{- if lt (int (.Values.replicas | default 2)) 2 }}{{ fail "replicas: mode cluster has 2 pods or more; one writes, the others take over" }}{{ end -}}
{{- if .Values.embedded.users }}{{ fail "embedded.users: with mode cluster, users are those of the NATS servers" }}{{ end -}}
{{- if not .Values.nats.url }}{{ fail "give the NATS servers in nats.url" }}{{ end -}}
{{- if not .Values.nats.secret }}{{ fail "give the Secret with nkeys or credentials in nats.secret" }}{{ end -}}
{{- .Values.replicas | default 2 -}}
{{- end -}}
{{- end -}}
