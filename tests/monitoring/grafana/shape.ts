// What a dashboard file may hold, from Grafana's own types: every panel with the options and the field configuration of
// its kind, and nothing that no type knows.
import type { AnnotationQuery, Dashboard, DataQuery, FieldConfig, Panel, RowPanel } from "@grafana/schema";
import type { Options as StatOptions } from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen";
import type {
  FieldConfig as LineConfig,
  Options as LineOptions,
} from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";

// JSON has no enums: their values stand for them.
type Plain<T> = T extends string
  ? `${T}`
  : T extends number
    ? T | (`${T}` extends `${infer N extends number}` ? N : never)
    : T extends boolean | null | undefined
      ? T
      : T extends (infer Item)[]
        ? Plain<Item>[]
        : T extends object
          ? { [Key in keyof T]: Plain<T[Key]> }
          : T;

// The parts of Prometheus' queries and annotations that are its plugin's own, and no package's.
interface PrometheusQuery extends DataQuery {
  expr: string;
  legendFormat?: string;
  range?: boolean;
  interval?: string;
}
interface PrometheusAnnotation extends Omit<AnnotationQuery, "target"> {
  target: PrometheusQuery;
  titleFormat?: string;
  textFormat?: string;
  tagKeys?: string;
  useValueForTime?: boolean;
}

type Of<Kind extends string, Options, Custom> = Omit<Panel, "type" | "options" | "fieldConfig" | "targets"> & {
  type: Kind;
  options: Options;
  targets: PrometheusQuery[];
  fieldConfig: { defaults: Omit<FieldConfig, "custom"> & Custom; overrides: [] };
};

export type Shape = Plain<
  Omit<Dashboard, "panels" | "annotations" | "uid"> & {
    uid: string;
    annotations: { list: PrometheusAnnotation[] };
    panels: (RowPanel | Of<"stat", StatOptions, unknown> | Of<"timeseries", LineOptions, { custom: LineConfig }>)[];
  }
>;
