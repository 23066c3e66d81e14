{{/* The PodTemplate out of which the operator makes every build's pod. */}}
{{- define "myria.podTemplate" -}}
{{- $at := dict "root" $ "own" .Values.builder "component" "builder" -}}
apiVersion: v1
kind: PodTemplate
metadata:
  name: {{ include "myria.fullname" . }}-builder
  namespace: {{ .Release.Namespace }}
template:
  metadata:
    {{- include "myria.podMetadata" $at | nindent 4 }}
  spec:
    restartPolicy: Never
    {{- include "myria.podSpec" (merge (dict "account" (include "myria.builderServiceAccountName" .) "token" .Values.builder.mayReport) $at) | nindent 4 }}
    terminationGracePeriodSeconds: {{ int .Values.builder.terminationGracePeriodSeconds }}
    {{- with include "myria.extraInitContainers" $at }}
    initContainers:
      {{- . | nindent 6 }}
    {{- end }}
    containers:
      - name: builder
        command: [myria, build]
        {{- $env := concat (include "myria.dsnEnv" (dict "root" $ "plane" "builder") | fromYamlArray) (include "myria.waitEnv" . | fromYamlArray) }}
        {{- include "myria.container" (merge (dict "env" $env) $at) | nindent 8 }}
    {{- include "myria.volumes" $at | nindent 4 }}
{{- end -}}
