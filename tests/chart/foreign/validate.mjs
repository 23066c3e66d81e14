// Reads objects as a JSON array from standard input; prints what the schemas of their kinds have against them.
import { HTTPRoute } from "@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/HTTPRoute";
import { PodMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor";
import { PrometheusRule } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule";
import { ServiceMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor";
import { readFileSync } from "node:fs";

const KINDS = { HTTPRoute, PodMonitor, PrometheusRule, ServiceMonitor };
const wrong = [];
for (const one of JSON.parse(readFileSync(0, "utf8"))) {
  try {
    new KINDS[one.kind](one).validate();
  } catch (problem) {
    wrong.push(`${one.kind}/${one.metadata.name}: ${problem.message}`);
  }
}
console.log(JSON.stringify(wrong));
