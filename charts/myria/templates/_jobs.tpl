{{/* The pods of the chart's own Jobs. A Job cannot be changed, so its name has a digest of its pod. */}}

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
