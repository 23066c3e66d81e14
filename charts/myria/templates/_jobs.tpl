{{/* The chart's own Jobs, and their pods. A Job cannot be changed, so its name has a digest of its pod. */}}

{{/* An account that may create Secrets and nothing else: (dict "root" $ "component" "logins" "name" "...") */}}
{{- define "myria.secretMaker" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "myria.metadata" . | nindent 2 }}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- include "myria.metadata" . | nindent 2 }}
rules:
  - apiGroups: [""]
    resources: [secrets]
    verbs: [create]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "myria.metadata" . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .name }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{/* A Job: (dict "root" $ "component" "logins" "name" "..." "pod" "..." "backoffLimit" 20), the pod as text */}}
{{- define "myria.job" -}}
apiVersion: batch/v1
kind: Job
metadata:
  {{- include "myria.metadata" . | nindent 2 }}
spec:
  backoffLimit: {{ .backoffLimit }}
  {{- with .root.Values.jobs.ttlSecondsAfterFinished }}
  ttlSecondsAfterFinished: {{ int . }}
  {{- end }}
  template:
    {{- .pod | nindent 4 }}
{{- end -}}

{{- define "myria.migratePod" -}}
{{- $at := dict "root" $ "own" .Values.jobs "component" "migrate" -}}
metadata:
  {{- include "myria.podMetadata" $at | nindent 2 }}
spec:
  restartPolicy: OnFailure
  {{- include "myria.podSpec" (merge (dict "account" (include "myria.serviceAccountName" .)) $at) | nindent 2 }}
  {{- with include "myria.extraInitContainers" $at }}
  initContainers:
    {{- . | nindent 4 }}
  {{- end }}
  containers:
    - name: migrate
      command:
        {{- include "myria.migrateCommand" . | nindent 8 }}
      {{- $env := include "myria.dsnEnv" (dict "root" $ "plane" "migrate") | fromYamlArray }}
      {{- include "myria.container" (merge (dict "env" $env) $at) | nindent 6 }}
  {{- include "myria.volumes" $at | nindent 2 }}
{{- end -}}

{{- define "myria.loginsPod" -}}
{{- $at := dict "root" $ "own" .Values.jobs "component" "logins" -}}
{{- $command := list "myria" "make-logins" "--host" (include "myria.databaseHost" .) "--database" (include "myria.databaseName" .) "--label" (printf "app.kubernetes.io/instance=%s" .Release.Name) "--label" "app.kubernetes.io/name=myria" -}}
{{- if eq .Values.postgres.mode "cnpg" -}}{{- $command = concat $command (list "--label" "cnpg.io/reload=true") -}}{{- end -}}
{{- range $plane, $role := include "myria.logins" . | fromYaml -}}
{{- $command = append $command (printf "%s=%s" (include "myria.dsnSecret" (dict "root" $ "plane" $plane)) $role) -}}
{{- end -}}
metadata:
  {{- include "myria.podMetadata" $at | nindent 2 }}
spec:
  restartPolicy: OnFailure
  {{- include "myria.podSpec" (merge (dict "account" (printf "%s-logins" (include "myria.fullname" .)) "token" true) $at) | nindent 2 }}
  {{- with include "myria.extraInitContainers" $at }}
  initContainers:
    {{- . | nindent 4 }}
  {{- end }}
  containers:
    - name: logins
      command:
        {{- toYaml $command | nindent 8 }}
      {{- include "myria.container" $at | nindent 6 }}
  {{- include "myria.volumes" $at | nindent 2 }}
{{- end -}}

{{/*
The first key. Where the chart makes it, a container that may only create Secrets makes one, and only then the kubelet
reads it for the next, which makes it known to the database.
*/}}
{{- define "myria.adminKeyPod" -}}
{{- $at := dict "root" $ "own" .Values.jobs "component" "admin-key" -}}
{{- $auth := .Values.auth -}}
{{- $makes := include "myria.makesKey" . -}}
{{- $account := ternary (dict "account" (printf "%s-admin-key" (include "myria.fullname" .)) "token" true) (dict "account" (include "myria.serviceAccountName" .)) (not (empty $makes)) -}}
metadata:
  {{- include "myria.podMetadata" $at | nindent 2 }}
spec:
  restartPolicy: OnFailure
  {{- include "myria.podSpec" (merge $account $at) | nindent 2 }}
  {{- $before := include "myria.extraInitContainers" $at }}
  {{- if or $before $makes }}
  initContainers:
    {{- with $before }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- if $makes }}
    {{- $command := list "myria" "make-key-secret" (include "myria.keySecret" .) "--field" $auth.adminKey.secretKey "--label" (printf "app.kubernetes.io/instance=%s" .Release.Name) "--label" "app.kubernetes.io/name=myria" }}
    - name: secret
      command:
        {{- toYaml $command | nindent 8 }}
      {{- include "myria.container" $at | nindent 6 }}
    {{- end }}
  {{- end }}
  containers:
    - name: key
      {{- $command := list "myria" "key" "create" "admin" "--key-env" "FIRST_KEY" "--tenant" .Values.server.tenant }}
      {{- range list "append" "read" "admin" }}{{ $command = concat $command (list "--role" .) }}{{ end }}
      {{- range list "core" "admin" }}{{ $command = concat $command (list "--face" .) }}{{ end }}
      {{- range $auth.adminKey.participants }}{{ $command = concat $command (list "--as" .) }}{{ end }}
      command:
        {{- toYaml $command | nindent 8 }}
      {{- $env := concat (include "myria.dsnEnv" (dict "root" $ "plane" (include "myria.keyPlane" .)) | fromYamlArray) (include "myria.waitEnv" . | fromYamlArray) (include "myria.keyEnv" (dict "root" $ "variable" "FIRST_KEY") | fromYamlArray) }}
      {{- include "myria.container" (merge (dict "env" $env) $at) | nindent 6 }}
  {{- include "myria.volumes" $at | nindent 2 }}
{{- end -}}
