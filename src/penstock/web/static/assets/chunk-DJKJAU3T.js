var z={zh:"zh-53dd79056e.json"};export{z as a};
