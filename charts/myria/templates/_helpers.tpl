{{/* Names. They leave room for suffixes, and for what a StatefulSet or a Job adds to its pods' names. */}}
{{- define "myria.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Names of objects that belong to the whole cluster. */}}
{{- define "myria.clusterName" -}}
{{- printf "%s-%s" (include "myria.fullname" .) .Release.Namespace | trunc 100 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels. Call with (dict "root" $ "component" "server"); without a component they are the release's. */}}
{{- define "myria.labels" -}}
{{- include "myria.selectorLabels" . }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: myria
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What pods are found by. The name is always myria: the operator gives its Jobs the same. */}}
{{- define "myria.selectorLabels" -}}
app.kubernetes.io/name: myria
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{/* metadata of an object: (dict "root" $ "component" "server" "name" "..." "annotations" (dict) "labels" (dict)) */}}
{{- define "myria.metadata" -}}
name: {{ .name }}
{{- if not .cluster }}
namespace: {{ .root.Release.Namespace }}
{{- end }}
labels:
  {{- $labels := include "myria.labels" . | fromYaml }}
  {{- toYaml (merge (dict) (default (dict) .labels) $labels) | nindent 2 }}
{{- with merge (dict) (default (dict) .annotations) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "myria.image" -}}
{{- $registry := (default (dict) .Values.global).imageRegistry -}}
{{- $repository := ternary (printf "%s/%s" (default "" $registry | trimSuffix "/") .Values.image.repository) .Values.image.repository (not (empty $registry)) -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Service accounts. */}}
{{- define "myria.serviceAccountName" -}}
{{- default (ternary (include "myria.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}
{{- define "myria.operatorServiceAccountName" -}}
{{- default (ternary (printf "%s-operator" (include "myria.fullname" .)) "default" .Values.operator.serviceAccount.create) .Values.operator.serviceAccount.name -}}
{{- end -}}
{{- define "myria.builderServiceAccountName" -}}
{{- default (ternary (printf "%s-builder" (include "myria.fullname" .)) "default" .Values.builder.serviceAccount.create) .Values.builder.serviceAccount.name -}}
{{- end -}}

{{/*
Connection strings. Secret and key of a plane: (dict "root" $ "plane" "server"); planes are server, operator, builder
and migrate. Where the chart makes the logins (cnpg, trial), each role has a Secret of its own.
*/}}
{{- define "myria.cnpgClusterName" -}}
{{- default (printf "%s-db" (include "myria.fullname" .)) .Values.postgres.cnpg.clusterName -}}
{{- end -}}
{{- define "myria.trialName" -}}
{{- printf "%s-trial-db" (include "myria.fullname" .) -}}
{{- end -}}
{{- define "myria.dsnSecret" -}}
{{- $root := .root -}}
{{- $postgres := $root.Values.postgres -}}
{{- if eq $postgres.mode "external" -}}
{{- if $postgres.dsn -}}
{{- printf "%s-dsn" (include "myria.fullname" $root) -}}
{{- else -}}
{{- default (printf "%s-postgres" (include "myria.fullname" $root)) $postgres.secret.name -}}
{{- end -}}
{{- else if and (eq $postgres.mode "cnpg") (eq .plane "migrate") -}}
{{- printf "%s-app" (include "myria.cnpgClusterName" $root) -}}
{{- else -}}
{{- printf "%s-login-%s" (include "myria.fullname" $root) .plane -}}
{{- end -}}
{{- end -}}
{{- define "myria.dsnKey" -}}
{{- $postgres := .root.Values.postgres -}}
{{- if eq $postgres.mode "external" -}}
{{- ternary "dsn" (index $postgres.secret.keys .plane) (not (empty $postgres.dsn)) -}}
{{- else if and (eq $postgres.mode "cnpg") (eq .plane "migrate") -}}
uri
{{- else -}}
dsn
{{- end -}}
{{- end -}}
{{- define "myria.dsnEnv" -}}
- name: {{ default "MYRIA_POSTGRES_DSN" .variable }}
  valueFrom:
    secretKeyRef:
      name: {{ include "myria.dsnSecret" . }}
      key: {{ include "myria.dsnKey" . }}
{{- end -}}

{{/* Whether one connection string serves all planes: "true" or "". */}}
{{- define "myria.singleDsn" -}}
{{- $postgres := .Values.postgres -}}
{{- if eq $postgres.mode "external" -}}
{{- if or $postgres.dsn (eq 1 (len (uniq (values $postgres.secret.keys)))) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* The planes whose logins the chart makes, and their roles: a map, empty for an external PostgreSQL. */}}
{{- define "myria.logins" -}}
{{- if or (eq .Values.postgres.mode "trial") (and (eq .Values.postgres.mode "cnpg") .Values.postgres.cnpg.create) -}}
server: myria_server
operator: myria_operator
builder: myria_builder
{{- if eq .Values.postgres.mode "trial" }}
migrate: myria_owner
{{- end }}
{{- else -}}
{}
{{- end -}}
{{- end -}}

{{/* Where clients outside reach the Service, without a slash at its end; "" where nobody says. */}}
{{- define "myria.publicUrl" -}}
{{- default "" .Values.auth.publicUrl | trimSuffix "/" -}}
{{- end -}}

{{/* The Secret with the certificate of serving pods, and how their addresses begin; without a Secret it is "". */}}
{{- define "myria.tlsSecret" -}}
{{- default "" .Values.server.tls.secretName -}}
{{- end -}}
{{- define "myria.scheme" -}}
{{- ternary "https" "http" (not (empty (include "myria.tlsSecret" .))) -}}
{{- end -}}

{{/* Paths that clients outside call: of MCP, REST and turns, of the console where it is on, and of what tells them where to get a token. A JSON array. */}}
{{- define "myria.publicPaths" -}}
{{- $auth := .Values.auth -}}
{{- $paths := list "/mcp" "/api/v1" "/v1" -}}
{{- if (.Values.settings.console).enabled -}}{{- $paths = append $paths "/console" -}}{{- end -}}
{{- if or $auth.server $auth.issuers -}}{{- $paths = append $paths "/.well-known/oauth-protected-resource" -}}{{- end -}}
{{- if $auth.server -}}{{- $paths = concat $paths (list "/.well-known/oauth-authorization-server" "/oauth") -}}{{- end -}}
{{- $paths | toJson -}}
{{- end -}}

{{/* Whether callers need a key: "true" or "". */}}
{{- define "myria.needsKeys" -}}
{{- if eq .Values.auth.mode "keys" -}}true{{- end -}}
{{- end -}}

{{/* Whether the chart makes the first key: "true" or "". */}}
{{- define "myria.makesKey" -}}
{{- $auth := .Values.auth -}}
{{- if and (eq $auth.mode "keys") (not $auth.existingSecret) $auth.adminKey.create -}}true{{- end -}}
{{- end -}}

{{/* The Secret with the first key, and its field; the Secret is empty where there is none. */}}
{{- define "myria.keySecret" -}}
{{- $auth := .Values.auth -}}
{{- if include "myria.makesKey" . -}}
{{- default (printf "%s-admin-key" (include "myria.fullname" .)) $auth.adminKey.secretName -}}
{{- else if eq $auth.mode "keys" -}}
{{- $auth.existingSecret -}}
{{- end -}}
{{- end -}}
{{- define "myria.keyEnv" -}}
- name: {{ .variable }}
  valueFrom:
    secretKeyRef:
      name: {{ include "myria.keySecret" .root }}
      key: {{ .root.Values.auth.adminKey.secretKey }}
{{- end -}}

{{/* The plane whose connection string makes keys known; without an operator only that of migrations is sure to be given. */}}
{{- define "myria.keyPlane" -}}
{{- ternary "operator" "migrate" .Values.operator.enabled -}}
{{- end -}}

{{/* Whether `helm test` can run: "true" or "". */}}
{{- define "myria.hasTest" -}}
{{- if and .Values.tests.enabled (or (not (include "myria.needsKeys" .)) (include "myria.keySecret" .)) -}}true{{- end -}}
{{- end -}}

{{- define "myria.databaseHost" -}}
{{- if eq .Values.postgres.mode "cnpg" -}}
{{- printf "%s-rw.%s" (include "myria.cnpgClusterName" .) .Release.Namespace -}}
{{- else -}}
{{- printf "%s.%s" (include "myria.trialName" .) .Release.Namespace -}}
{{- end -}}
{{- end -}}
{{- define "myria.databaseName" -}}
{{- ternary .Values.postgres.cnpg.database "myria" (eq .Values.postgres.mode "cnpg") -}}
{{- end -}}

{{/* The command of migrations: it waits for the database, and grants where the planes have roles. */}}
{{- define "myria.migrateCommand" -}}
- myria
- migrate
- --wait
- {{ .Values.migrations.waitSeconds | int | toString | quote }}
{{- if and .Values.postgres.grantRoles (not (include "myria.singleDsn" .)) }}
- --grant
{{- end }}
{{- end -}}

{{/* Names under which the Service is called, and others that were allowed: a JSON array. */}}
{{- define "myria.allowedHosts" -}}
{{- $service := include "myria.fullname" . -}}
{{- $namespace := .Release.Namespace -}}
{{- $names := list $service (printf "%s.%s" $service $namespace) (printf "%s.%s.svc" $service $namespace) (printf "%s.%s.svc.%s" $service $namespace .Values.server.clusterDomain) -}}
{{- if .Values.ingress.enabled -}}
{{- range .Values.ingress.hosts -}}{{- $names = append $names .host -}}{{- end -}}
{{- end -}}
{{- if .Values.httpRoute.enabled -}}
{{- range .Values.httpRoute.hostnames -}}{{- $names = append $names . -}}{{- end -}}
{{- end -}}
{{- with include "myria.publicUrl" . -}}
{{- $names = append $names (regexReplaceAll "^https?://(\\[[^\\]]*\\]|[^:/]*).*$" . "${1}") -}}
{{- end -}}
{{- concat $names .Values.server.allowedHosts | uniq | toJson -}}
{{- end -}}

{{/* Variables of pods that wait for migrations, which others apply. */}}
{{- define "myria.waitEnv" -}}
- name: MYRIA_MIGRATE_WAIT_S
  value: {{ .Values.migrations.waitSeconds | int | toString | quote }}
{{- end -}}

{{/* What the kubelet gives a serving pod after SIGTERM: it lingers, drains, and has ten seconds to end. */}}
{{- define "myria.serverGraceSeconds" -}}
{{- $mcp := default (dict) .Values.settings.mcp -}}
{{- $linger := 5 -}}
{{- $drain := 10 -}}
{{- if hasKey $mcp "linger_s" -}}{{- $linger = $mcp.linger_s -}}{{- end -}}
{{- if hasKey $mcp "drain_s" -}}{{- $drain = $mcp.drain_s -}}{{- end -}}
{{- add (ceil $linger | int) (ceil $drain | int) 10 -}}
{{- end -}}

{{/* Whether somebody builds, and callers may ask for it: "true" or "". */}}
{{- define "myria.canTrigger" -}}
{{- $mcp := default (dict) .Values.settings.mcp -}}
{{- $builder := default (dict) .Values.settings.builder -}}
{{- $profiles := default (list "core" "observe" "admin") $mcp.profiles -}}
{{- if and .Values.operator.enabled (has "admin" $profiles) (ne (toString $builder.allow_manual_trigger) "false") -}}true{{- end -}}
{{- end -}}

{{/* How many serving pods there are at least, as far as the values tell; two where they leave it open. */}}
{{- define "myria.expectedReplicas" -}}
{{- if .Values.autoscaling.enabled -}}
{{- .Values.autoscaling.minReplicas | int -}}
{{- else if kindIs "invalid" .Values.server.replicas -}}
2
{{- else -}}
{{- .Values.server.replicas | int -}}
{{- end -}}
{{- end -}}
