{{/*
Parts that all pods have. Called with
  (dict "root" $ "own" .Values.server "component" "server")
where `own` holds what values.yaml lets a component say for itself; `pods` holds the same for all of them.
*/}}

{{- define "myria.podMetadata" -}}
{{- $pods := .root.Values.pods -}}
{{- $own := default (dict) .own -}}
labels:
  {{- $labels := include "myria.labels" . | fromYaml }}
  {{- $labels = omit $labels "helm.sh/chart" }}
  {{- toYaml (merge (dict) $labels (default (dict) $own.labels) $pods.labels) | nindent 2 }}
{{- with merge (dict) (default (dict) .annotations) (default (dict) $own.annotations) $pods.annotations .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Fields of a pod's spec beside its containers. Further keys: "account", "token" (bool), "fsGroup", "spread" (bool). */}}
{{- define "myria.podSpec" -}}
{{- $root := .root -}}
{{- $pods := $root.Values.pods -}}
{{- $own := default (dict) .own -}}
serviceAccountName: {{ .account }}
automountServiceAccountToken: {{ default false .token }}
{{- /* Variables such as MYRIA_POSTGRES_PORT, made from Services, would be taken for settings. */}}
enableServiceLinks: false
{{- $secrets := concat $root.Values.imagePullSecrets (default (list) (default (dict) $root.Values.global).imagePullSecrets) }}
{{- with $secrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ if kindIs "string" . }}{{ . }}{{ else }}{{ .name }}{{ end }}
  {{- end }}
{{- end }}
{{- $security := $pods.securityContext }}
{{- if .fsGroup }}
{{- $security = merge (dict "fsGroup" (int .fsGroup) "fsGroupChangePolicy" "OnRootMismatch") $security }}
{{- end }}
securityContext:
  {{- toYaml $security | nindent 2 }}
{{- with default $pods.priorityClassName $own.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with merge (dict) (default (dict) $own.nodeSelector) $pods.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat $pods.tolerations (default (list) $own.tolerations) }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with merge (dict) (default (dict) $own.affinity) $pods.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The containers given for all pods and for this one, to run before the chart's own. Nothing when there are none. */}}
{{- define "myria.extraInitContainers" -}}
{{- with concat .root.Values.pods.extraInitContainers (default (list) (default (dict) .own).extraInitContainers) }}
{{- toYaml . }}
{{- end }}
{{- end -}}

{{/* Image, environment and mounts of one of the chart's own containers. Further keys: "env" (list), "mounts" (list). */}}
{{- define "myria.container" -}}
{{- $root := .root -}}
{{- $pods := $root.Values.pods -}}
{{- $own := default (dict) .own -}}
image: {{ include "myria.image" $root }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
env:
  {{- with .env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- /* A user without a name, as OpenShift gives, has neither. */}}
  - name: HOME
    value: /tmp
  - name: USER
    value: myria
  {{- if not .withoutSettings }}
  {{- /* Every reader of the settings: others of the section `auth` depend on it. */}}
  - name: MYRIA_AUTH_MODE
    value: {{ $root.Values.auth.mode }}
  {{- end }}
  {{- if and $root.Values.settings (not .withoutSettings) }}
  - name: MYRIA_CONFIG
    value: /etc/myria/settings/myria.yaml
  {{- end }}
  {{- with concat $pods.extraEnv (default (list) $own.extraEnv) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with concat $pods.extraEnvFrom (default (list) $own.extraEnvFrom) }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml $pods.containerSecurityContext | nindent 2 }}
{{- with default $own.resources .resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - name: tmp
    mountPath: /tmp
  {{- if and $root.Values.settings (not .withoutSettings) }}
  - name: settings
    mountPath: /etc/myria/settings
    readOnly: true
  {{- end }}
  {{- with .mounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with concat $pods.extraVolumeMounts (default (list) $own.extraVolumeMounts) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Volumes. Further key: "volumes" (list). */}}
{{- define "myria.volumes" -}}
{{- $root := .root -}}
volumes:
  - name: tmp
    emptyDir:
      sizeLimit: 256Mi
  {{- if and $root.Values.settings (not .withoutSettings) }}
  - name: settings
    configMap:
      name: {{ include "myria.fullname" $root }}-settings
  {{- end }}
  {{- with .volumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with concat $root.Values.pods.extraVolumes (default (list) (default (dict) .own).extraVolumes) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
