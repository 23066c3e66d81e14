{{/* Values that contradict each other, or need one more decision: one sentence for each, all at once. */}}
{{- define "myria.checks" -}}
{{- $v := .Values -}}
{{- $said := list -}}
{{- $auth := $v.auth -}}
{{- $open := eq $auth.mode "none" -}}
{{- if and $open (not $v.server.authenticatedInFront) (not $v.server.allowUnauthenticated) -}}
{{- $said = append $said "auth.mode is none, so whoever reaches the Service would read and write the whole memory: set auth.mode to keys; or, if something in front authenticates callers, set server.authenticatedInFront to true; or, if everybody in the cluster may, set server.allowUnauthenticated to true" -}}
{{- end -}}
{{- if and $open (or $v.ingress.enabled $v.httpRoute.enabled) (not $v.server.authenticatedInFront) -}}
{{- $said = append $said "ingress.enabled and httpRoute.enabled with auth.mode none put a memory without authentication in reach of others: set auth.mode to keys; or let something in front authenticate, and set server.authenticatedInFront to true" -}}
{{- end -}}
{{- if and $open $auth.existingSecret -}}
{{- $said = append $said "auth.existingSecret holds a key, but auth.mode is none and asks for none: set auth.mode to keys, or leave the Secret out" -}}
{{- end -}}
{{- if and $auth.existingSecret $auth.adminKey.secretName -}}
{{- $said = append $said "auth.existingSecret and auth.adminKey.secretName both say where the first key is: give one of them" -}}
{{- end -}}
{{- if and $open (or $auth.server $auth.issuers) -}}
{{- $said = append $said "auth.server and auth.issuers prove who calls, but auth.mode is none and asks for no proof: set auth.mode to keys, or leave them out" -}}
{{- end -}}
{{- if and (or $auth.server $auth.issuers) (not $auth.publicUrl) -}}
{{- $said = append $said "auth.server and auth.issuers need auth.publicUrl: tokens are issued for the address at which clients reach the Service" -}}
{{- end -}}
{{- if and (not $v.rbac.create) (include "myria.makesKey" .) -}}
{{- $said = append $said "auth.mode keys makes the first key's Secret in the cluster and needs a Role for that: set rbac.create to true, bring a key of your own with auth.existingSecret, or set auth.adminKey.create to false" -}}
{{- end -}}
{{- if and $v.ingress.enabled (empty $v.ingress.hosts) -}}
{{- $said = append $said "ingress.enabled needs ingress.hosts: a request for any other host is refused" -}}
{{- end -}}
{{- if and $v.httpRoute.enabled (empty $v.httpRoute.parentRefs) -}}
{{- $said = append $said "httpRoute.enabled needs httpRoute.parentRefs: the Gateways to attach to" -}}
{{- end -}}
{{- if and $v.httpRoute.enabled (empty $v.httpRoute.hostnames) -}}
{{- $said = append $said "httpRoute.enabled needs httpRoute.hostnames: a request for any other host is refused" -}}
{{- end -}}
{{- if and $v.autoscaling.enabled (gt (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas)) -}}
{{- $said = append $said (printf "autoscaling.minReplicas (%d) is greater than autoscaling.maxReplicas (%d)" (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- if and $v.podDisruptionBudget.enabled (not (kindIs "invalid" $v.podDisruptionBudget.minAvailable)) (not (kindIs "invalid" $v.podDisruptionBudget.maxUnavailable)) -}}
{{- $said = append $said "podDisruptionBudget takes one of minAvailable and maxUnavailable: set the other to null" -}}
{{- end -}}
{{- $replicas := int (include "myria.expectedReplicas" .) -}}
{{- with $v.podDisruptionBudget -}}
{{- if and .enabled (not (kindIs "string" .minAvailable)) (ge (int .minAvailable) $replicas) (gt $replicas 1) -}}
{{- $said = append $said (printf "podDisruptionBudget.minAvailable (%d) lets none of %d serving pods go, so no node could be drained" (int .minAvailable) $replicas) -}}
{{- end -}}
{{- end -}}
{{- if and $v.monitoring.serviceMonitor.enabled $v.monitoring.podMonitor.enabled -}}
{{- $said = append $said "monitoring.serviceMonitor.enabled and monitoring.podMonitor.enabled would scrape everything twice: choose one" -}}
{{- end -}}
{{- if and $v.postgres.dsn (ne $v.postgres.mode "external") -}}
{{- $said = append $said (printf "postgres.dsn names a PostgreSQL of yours, but postgres.mode is %s: set the mode to external, or leave the dsn out" $v.postgres.mode) -}}
{{- end -}}
{{- if and $v.postgres.secret.name (ne $v.postgres.mode "external") -}}
{{- $said = append $said (printf "postgres.secret.name names connection strings of yours, but postgres.mode is %s: set the mode to external, or leave the name out" $v.postgres.mode) -}}
{{- end -}}
{{- if and $v.postgres.dsn $v.postgres.secret.name -}}
{{- $said = append $said "postgres.dsn and postgres.secret.name both say where PostgreSQL is: give one of them" -}}
{{- end -}}
{{- if and (not $v.rbac.create) (ne $v.postgres.mode "external") (include "myria.logins" . | fromYaml) -}}
{{- $said = append $said (printf "postgres.mode %s makes Secrets in the cluster and needs a Role for that: set rbac.create to true, or bring your own database with postgres.mode external" $v.postgres.mode) -}}
{{- end -}}
{{- if and $v.operator.enabled (eq (include "myria.builderServiceAccountName" .) (include "myria.operatorServiceAccountName" .)) -}}
{{- $said = append $said (printf "operator and builds would share the ServiceAccount %s, and builds its rights: name two in operator.serviceAccount.name and builder.serviceAccount.name" (include "myria.operatorServiceAccountName" .)) -}}
{{- end -}}
{{- if and $v.operator.enabled (eq (int $v.operator.probePort) (int $v.operator.metricsPort)) -}}
{{- $said = append $said (printf "operator.probePort and operator.metricsPort are both %d: choose two ports" (int $v.operator.probePort)) -}}
{{- end -}}
{{- $owned := dict "auth.mode" "auth.mode" "auth.public_url" "auth.publicUrl" "auth.server" "auth.server" "auth.issuers_file" "auth.issuers" "mcp.tls_certificate" "server.tls" "mcp.tls_key" "server.tls" "mcp.host" "server.host" "mcp.port" "server.containerPort" "mcp.allowed_hosts" "server.allowedHosts" "postgres.dsn" "postgres.secret or postgres.dsn" "operator.namespace" "the release's namespace" "operator.pod_template" "builder" "operator.deployment" "operator.stopBuildsOnUninstall" "operator.probe_port" "operator.probePort" "operator.metrics_port" "operator.metricsPort" "migrate.wait_s" "migrations.waitSeconds" -}}
{{- range $key, $instead := $owned -}}
{{- $parts := splitList "." $key -}}
{{- $section := index $v.settings (first $parts) -}}
{{- if and (kindIs "map" $section) (hasKey $section (last $parts)) -}}
{{- $said = append $said (printf "settings.%s is decided by the chart: use %s" $key $instead) -}}
{{- end -}}
{{- end -}}
{{- $deployments := lookup "apps/v1" "Deployment" .Release.Namespace "" -}}
{{- if $v.operator.enabled -}}
{{- range $deployments.items -}}
{{- $labels := default (dict) .metadata.labels -}}
{{- if and (eq (index $labels "app.kubernetes.io/name" | toString) "myria") (eq (index $labels "app.kubernetes.io/component" | toString) "operator") (ne (index $labels "app.kubernetes.io/instance" | toString) $.Release.Name) -}}
{{- $said = append $said (printf "the namespace %s holds the installation %s already, and one installation is one namespace: use another, or set operator.enabled to false" $.Release.Namespace (index $labels "app.kubernetes.io/instance")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $v.crds.enabled -}}
{{- $found := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "myriarebuilds.myria.dev" -}}
{{- if $found -}}
{{- $annotations := default (dict) $found.metadata.annotations -}}
{{- $owner := index $annotations "meta.helm.sh/release-name" | default "" -}}
{{- $space := index $annotations "meta.helm.sh/release-namespace" | default "" -}}
{{- if or (ne $owner .Release.Name) (ne $space .Release.Namespace) -}}
{{- $who := ternary (printf "the release %s in the namespace %s" $owner $space) "somebody without Helm" (ne $owner "") -}}
{{- $said = append $said (printf "the definition myriarebuilds.myria.dev is there already and belongs to %s: this is a second installation, so set crds.enabled to false (to take it over instead, annotate it with meta.helm.sh/release-name=%s and meta.helm.sh/release-namespace=%s, and label it app.kubernetes.io/managed-by=Helm)" $who .Release.Name .Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- /* Only a live API server knows which kinds it serves; `helm template` does not ask one. */}}
{{- if $deployments.kind -}}
{{- $foreign := list -}}
{{- if and (eq (toString $v.postgres.mode) "cnpg") $v.postgres.cnpg.create -}}
{{- $foreign = append $foreign (list "postgres.mode cnpg" "postgresql.cnpg.io/v1/Cluster" "install CloudNativePG first, or choose postgres.mode trial or external") -}}
{{- end -}}
{{- if $v.monitoring.serviceMonitor.enabled -}}
{{- $foreign = append $foreign (list "monitoring.serviceMonitor.enabled" "monitoring.coreos.com/v1/ServiceMonitor" "install the Prometheus operator first, or set it to false") -}}
{{- end -}}
{{- if $v.monitoring.podMonitor.enabled -}}
{{- $foreign = append $foreign (list "monitoring.podMonitor.enabled" "monitoring.coreos.com/v1/PodMonitor" "install the Prometheus operator first, or set it to false") -}}
{{- end -}}
{{- if $v.monitoring.prometheusRule.enabled -}}
{{- $foreign = append $foreign (list "monitoring.prometheusRule.enabled" "monitoring.coreos.com/v1/PrometheusRule" "install the Prometheus operator first, or set it to false") -}}
{{- end -}}
{{- if $v.httpRoute.enabled -}}
{{- $foreign = append $foreign (list "httpRoute.enabled" "gateway.networking.k8s.io/v1/HTTPRoute" "install the Gateway API first, or set it to false") -}}
{{- end -}}
{{- range $foreign -}}
{{- if not ($.Capabilities.APIVersions.Has (index . 1)) -}}
{{- $said = append $said (printf "%s needs the kind %s, which this cluster does not serve: %s" (index . 0) (index . 1) (index . 2)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $said -}}
{{- fail (printf "\n\n- %s\n" (join "\n- " $said)) -}}
{{- end -}}
{{- end -}}
